//! What commands can do.

use crate::world::World;
use std::fs;

#[test]
fn a_c_project_is_built_and_tested() {
    let mut world = World::with(|settings| settings.quota = 256 * 1024 * 1024);
    fs::write(world.folder.join("add.h"), "int add(int, int);\n").expect("written");
    fs::write(world.folder.join("add.c"), "#include \"add.h\"\nint add(int a, int b) { return a + b; }\n")
        .expect("written");
    let test = "#include <assert.h>\n#include <stdio.h>\n#include \"add.h\"\nint main(void) { assert(add(2, 2) == 4); puts(\"tested\"); }\n";
    fs::write(world.folder.join("test.c"), test).expect("written");
    let makefile = "check: test\n\t./test\ntest: test.o add.o\n\t$(CC) -pthread -g -o $@ $^\n";
    fs::write(world.folder.join("Makefile"), makefile).expect("written");

    let output = world.output("make -j4 CC=cc check 2>&1");

    assert!(output.ends_with("tested\n"), "{output}");
}

#[test]
fn a_python_project_is_tested_in_processes_of_its_own() {
    let mut world = World::new();
    let test = "import unittest, multiprocessing, subprocess, tempfile, os, pty\n\
        def square(n): return n * n\n\
        class Test(unittest.TestCase):\n\
        \x20 def test_pool(self):\n\
        \x20   with multiprocessing.Pool(2) as pool: self.assertEqual(pool.map(square, [2, 3]), [4, 9])\n\
        \x20 def test_child(self): self.assertEqual(subprocess.check_output(['echo', 'hi'], text=True), 'hi\\n')\n\
        \x20 def test_file(self):\n\
        \x20   with tempfile.NamedTemporaryFile() as file: os.replace(file.name, 'moved'); open(file.name, 'w').close()\n\
        \x20 def test_terminal(self):\n\
        \x20   ours, theirs = pty.openpty(); self.assertTrue(os.isatty(theirs)); os.get_terminal_size(theirs)\n";
    fs::write(world.folder.join("test_all.py"), test).expect("written");

    let ended = world.run("TMPDIR=. python3 -m unittest -v test_all");

    assert_eq!(ended.end, "Exited(0)", "{}", ended.stderr);
}

#[test]
fn a_repository_is_made_and_committed_to() {
    let mut world = World::new();

    let output = world.output(
        "git init -q . && git config user.email a@example.com && git config user.name a && echo one > file && \
         git add -A && git commit -qm one && git gc -q && git log --format=%s && ls -l file | cut -c1-10",
    );

    assert_eq!(output, "one\n-rw-r--r--\n");
}
