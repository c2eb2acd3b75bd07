//! The secrets that are known by how they are written, one a line. Their beginnings are what their issuers publish, so that
//! scanners find them; what follows is asked for as long as the shortest that is given out.
//!
//! No example stands here: a scanner of this repository would find it. [`Shape::example`] makes one.

use super::pattern::Part::{Exactly, Pieces, Run, Text};
use super::pattern::Set::{
    Alnum, Base64, Digit, Dotted, DottedPercent, DottedTilde, Hash, Hex, Padded, Path, Under64, Upper, UpperDash, Url64,
};
use super::pattern::{Part, Set, Shape};

/// All of them.
pub const SHAPES: &[Shape] = &[
    // Ours, and those of the protocols we speak.
    word(
        "jwt",
        "JSON Web Token (RFC 7519), signed or encrypted",
        &["eyJ"],
        &[Run(Url64, 8), Text("."), Run(Url64, 4), Pieces(Url64)],
    ),
    shape("portcullis-refresh", "refresh token of this gateway", &["pcr_"], &[Run(Url64, 22)]),
    word("portcullis-client", "client secret of this gateway", &["cs_"], &[Run(Url64, 40)]),
    shape("webhook-secret", "secret of a webhook (Standard Webhooks, Stripe)", &["whsec_"], &[Run(Base64, 20)]),
    shape(
        "argon2",
        "password hash (Argon2)",
        &["$argon2id$", "$argon2i$", "$argon2d$"],
        &[Run(Base64, 0), Text("$"), HASH],
    ),
    shape("crypt", "password hash (crypt)", &["$apr1$", "$2a$", "$2b$", "$2y$", "$6$", "$5$", "$y$", "$7$"], &[HASH]),
    shape("age", "private key of age", &["AGE-SECRET-KEY-", "AGE-PLUGIN-"], &[Run(UpperDash, 40)]),
    shape("putty", "private key of PuTTY", &["PuTTY-User-Key-File-"], &[Run(Digit, 1), Text(":"), REST]),
    // Clouds.
    word("aws-key-id", "AWS access key id", &["AKIA", "ASIA", "ABIA", "ACCA"], &[Exactly(Upper, 16)]),
    word("aws-session", "AWS session token", &["IQoJb3JpZ2lu", "FwoGZXIvYXdz", "FQoGZXIvYXdz"], &[Run(Base64, 60)]),
    word("aws-bedrock", "AWS Bedrock API key", &["ABSK", "bedrock-api-key-"], &[Run(Base64, 60)]),
    shape("aws-mws", "Amazon MWS token", &["amzn.mws."], &[Run(Url64, 30)]),
    word("google-api", "Google API key", &["AIza"], &[Run(Url64, 30)]),
    word("google-access", "Google OAuth access token", &["ya29."], &[Run(Dotted, 20)]),
    word("google-refresh", "Google OAuth refresh token", &["1//0"], &[Run(Url64, 30)]),
    shape("google-client", "Google OAuth client secret", &["GOCSPX-"], &[Run(Url64, 20)]),
    mark("azure-client", "Microsoft Entra client secret", &["Q~"], (DottedTilde, 4), &[Run(DottedTilde, 30)]),
    mark("azure-key", "Azure key (Azure DevOps and others)", &["JQQJ9"], (Alnum, 30), &[Run(Alnum, 5)]),
    shape("digitalocean", "DigitalOcean token", &["dop_v1_", "doo_v1_", "dor_v1_"], &[Run(Hex, 40)]),
    shape("heroku", "Heroku API key", &["HRKU-"], &[Run(Url64, 30)]),
    shape("fly", "Fly.io token", &["fm1_", "fm2_", "fo1_", "fm1r_", "fm1a_"], &[Run(Base64, 40)]),
    word("alibaba", "Alibaba Cloud access key id", &["LTAI"], &[Run(Alnum, 16)]),
    word("scaleway", "Scaleway access key", &["SCW"], &[Exactly(Upper, 17)]),
    shape("tailscale", "Tailscale key", &["tskey-"], &[Run(Url64, 20)]),
    shape("1password", "1Password service account", &["ops_eyJ"], &[Run(Url64, 40)]),
    // Code, packages, delivery.
    shape("github", "GitHub token", &["ghp_", "gho_", "ghu_", "ghs_", "ghr_"], &[Run(Alnum, 30)]),
    shape("github-fine", "GitHub fine-grained token", &["github_pat_"], &[Run(Url64, 22)]),
    shape(
        "gitlab",
        "GitLab token",
        &[
            "glpat-",
            "gldt-",
            "glrt-",
            "glcbt-",
            "glptt-",
            "glft-",
            "glimt-",
            "glagent-",
            "gloas-",
            "glsoat-",
            "glffct-",
            "GR1348941",
        ],
        &[Run(Dotted, 18)],
    ),
    word("atlassian", "Atlassian or Bitbucket token", &["ATATT3", "ATCTT3", "ATSTT3", "ATBB"], &[Run(Padded, 20)]),
    shape("npm", "npm token", &["npm_"], &[Run(Alnum, 36)]),
    shape("pypi", "PyPI token", &["pypi-"], &[Run(Url64, 40)]),
    shape("rubygems", "RubyGems key", &["rubygems_"], &[Run(Hex, 40)]),
    word("crates", "crates.io token", &["cio"], &[Exactly(Alnum, 32)]),
    word("nuget", "NuGet key", &["oy2"], &[Exactly(Alnum, 43)]),
    shape("clojars", "Clojars token", &["CLOJARS_"], &[Run(Alnum, 40)]),
    shape("docker", "Docker Hub token", &["dckr_pat_", "dckr_oat_"], &[Run(Url64, 20)]),
    word("artifactory", "Artifactory API key", &["AKCp"], &[Run(Alnum, 60)]),
    shape("circleci", "CircleCI token", &["CCIPAT_", "CCIPRJ_"], &[Run(Url64, 30)]),
    shape("buildkite", "Buildkite token", &["bkua_", "bkct_"], &[Run(Alnum, 30)]),
    shape("sonar", "SonarQube token", &["sqp_", "squ_", "sqa_"], &[Run(Hex, 36)]),
    shape("pulumi", "Pulumi token", &["pul-"], &[Run(Hex, 36)]),
    mark("terraform", "Terraform Cloud token", &[".atlasv1."], (Alnum, 14), &[Run(Url64, 40)]),
    shape("vault", "HashiCorp Vault token", &["hvs.", "hvb.", "hvr."], &[Run(Url64, 20)]),
    shape(
        "doppler",
        "Doppler token",
        &["dp.pt.", "dp.ct.", "dp.st.", "dp.sa.", "dp.said.", "dp.scim.", "dp.audit."],
        &[Run(Dotted, 36)],
    ),
    // Models.
    shape("anthropic", "Anthropic API key", &["sk-ant-"], &[Run(Url64, 20)]),
    shape("openai", "OpenAI API key", &["sk-proj-", "sk-svcacct-", "sk-admin-", "sk-None-"], &[Run(Url64, 20)]),
    shape("openrouter", "OpenRouter key", &["sk-or-v1-"], &[Run(Hex, 40)]),
    shape("langfuse", "Langfuse secret key", &["sk-lf-"], &[Run(Url64, 30)]),
    word("sk", "API key (OpenAI of old, DeepSeek and others)", &["sk-"], &[Run(Alnum, 30)]),
    word("huggingface", "Hugging Face token", &["hf_", "api_org_"], &[Run(Alnum, 30)]),
    shape("groq", "Groq API key", &["gsk_"], &[Run(Alnum, 40)]),
    shape("perplexity", "Perplexity API key", &["pplx-"], &[Run(Alnum, 40)]),
    word("replicate", "Replicate token", &["r8_"], &[Run(Alnum, 32)]),
    word("xai", "xAI API key", &["xai-"], &[Run(Alnum, 60)]),
    shape("nvidia", "NVIDIA API key", &["nvapi-"], &[Run(Url64, 40)]),
    // Messages and people.
    shape(
        "slack",
        "Slack token",
        &["xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-", "xoxo-", "xoxe-", "xoxe.", "xoxc-", "xoxd-", "xapp-"],
        &[Run(DottedPercent, 10)],
    ),
    shape("slack-hook", "Slack webhook", &["hooks.slack.com/"], &[Run(Path, 20)]),
    mark("telegram", "Telegram bot token", &[":AA"], (Digit, 6), &[Run(Url64, 30)]),
    shape("discord-hook", "Discord webhook", &["/api/webhooks/"], &[Run(Digit, 10), Text("/"), Run(Url64, 30)]),
    word("twilio", "Twilio API key", &["SK"], &[Exactly(Hex, 32)]),
    word("sendgrid", "SendGrid key", &["SG."], &[Run(Url64, 16), Text("."), Run(Url64, 16)]),
    word("mailgun", "Mailgun key", &["key-"], &[Exactly(Hex, 32)]),
    mark("mailchimp", "Mailchimp key", &["-us"], (Hex, 32), &[Run(Digit, 1)]),
    shape("sendinblue", "Brevo key", &["xkeysib-", "xsmtpsib-"], &[Run(Url64, 40)]),
    shape("postman", "Postman key", &["PMAK-"], &[Run(Url64, 30)]),
    word("figma", "Figma token", &["figd_", "figdr_"], &[Run(Url64, 30)]),
    shape("linear", "Linear key", &["lin_api_", "lin_oauth_"], &[Run(Alnum, 30)]),
    shape("notion", "Notion token", &["ntn_"], &[Run(Alnum, 40)]),
    word("notion-old", "Notion token of old, and others that say what they are", &["secret_"], &[Run(Alnum, 32)]),
    word("airtable", "Airtable token", &["pat"], &[Exactly(Alnum, 14), Text("."), Run(Hex, 60)]),
    shape("typeform", "Typeform token", &["tfp_"], &[Run(Url64, 40)]),
    // Money and shops.
    shape("stripe", "Stripe key", &["sk_live_", "sk_test_", "rk_live_", "rk_test_"], &[Run(Alnum, 16)]),
    shape("shopify", "Shopify token", &["shpat_", "shpca_", "shppa_", "shpss_", "shptka_"], &[Run(Hex, 30)]),
    shape("square", "Square token", &["sq0atp-", "sq0csp-", "sq0idp-"], &[Run(Url64, 22)]),
    word("square-long", "Square access token", &["EAAA"], &[Run(Url64, 56)]),
    shape("flutterwave", "Flutterwave key", &["FLWSECK-", "FLWSECK_TEST-"], &[Run(Url64, 12)]),
    word("easypost", "EasyPost key", &["EZAK", "EZTK"], &[Run(Alnum, 54)]),
    // Data and watching.
    word("databricks", "Databricks token", &["dapi", "dose"], &[Run(Hex, 32)]),
    shape("grafana", "Grafana token", &["glsa_", "glc_"], &[Run(Under64, 32)]),
    word("grafana-old", "Grafana API key of old", &["eyJrIjoi"], &[Run(Base64, 40)]),
    shape("newrelic", "New Relic key", &["NRAK-", "NRII-", "NRIQ-", "NRJS-", "NRRA-", "NRAL-"], &[Run(Url64, 19)]),
    shape("sentry", "Sentry token", &["sntrys_", "sntryu_"], &[Run(Under64, 40)]),
    shape("dynatrace", "Dynatrace token", &["dt0c01.", "dt0s01.", "dt0s02.", "dt0s08."], &[Run(Dotted, 40)]),
    shape("planetscale", "PlanetScale credential", &["pscale_tkn_", "pscale_pw_", "pscale_oauth_"], &[Run(Dotted, 32)]),
    shape("supabase", "Supabase key", &["sbp_", "sb_secret_"], &[Run(Url64, 30)]),
    shape("mapbox", "Mapbox secret token", &["sk.eyJ"], &[Run(Dotted, 40)]),
];

const HASH: Part = Run(Hash, 20);
const REST: Part = Run(Set::Text, 20);

const fn shape(id: &'static str, what: &'static str, starts: &'static [&'static str], then: &'static [Part]) -> Shape {
    Shape { id, what, starts, before: None, then, has_edge: false }
}

/// One whose beginning words have as well.
const fn word(id: &'static str, what: &'static str, starts: &'static [&'static str], then: &'static [Part]) -> Shape {
    Shape { has_edge: true, ..shape(id, what, starts, then) }
}

/// One that is known by what stands in its middle.
const fn mark(
    id: &'static str,
    what: &'static str,
    starts: &'static [&'static str],
    before: (Set, usize),
    then: &'static [Part],
) -> Shape {
    Shape { before: Some(before), ..shape(id, what, starts, then) }
}
