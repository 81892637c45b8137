//! Checks that `docker-compose.yml` and `Dockerfile` agree with each other and with the real programs. Starts no
//! container.

mod cluster;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// The first etcd version from which on all progress responses are correct (`storage::etcd3`).
const ETCD_MINIMUM: (u32, u32, u32) = (3, 5, 13);

/// How members and server mount their certificates.
const CERTIFICATES_VOLUME: &str = "certificates:/certificates:ro";

fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

struct Compose {
    file: Value,
}

impl Compose {
    fn read() -> Self {
        let file = serde_saphyr::from_str(&read("docker-compose.yml")).expect("it is YAML");
        Self { file }
    }

    fn services(&self) -> &serde_json::Map<String, Value> {
        self.file["services"].as_object().expect("services")
    }

    fn members(&self) -> BTreeMap<&str, &Value> {
        self.services()
            .iter()
            .filter(|(name, _)| name.starts_with("etcd-"))
            .map(|(name, service)| (name.as_str(), service))
            .collect()
    }

    fn server(&self) -> &Value {
        &self.services()["watchet"]
    }

    /// Returns the flags of the server with their values; the command must consist of `serve` and flags.
    fn flags(&self) -> BTreeMap<String, String> {
        let command = texts(&self.server()["command"]);
        assert_eq!(command[0], "serve");
        let flag = |argument: &String| {
            let (flag, value) = argument.split_once('=').expect("--flag=value");
            (flag.to_owned(), value.to_owned())
        };
        command[1..].iter().map(flag).collect()
    }
}

fn texts(list: &Value) -> Vec<String> {
    let list = list.as_array().expect("a list");
    let text = |item: &Value| item.as_str().expect("a text").to_owned();
    list.iter().map(text).collect()
}

fn environment<'a>(service: &'a Value, name: &str) -> &'a str {
    service["environment"][name]
        .as_str()
        .unwrap_or_else(|| panic!("{name} is not set in {service}"))
}

fn version(image: &str) -> (u32, u32, u32) {
    let (name, _digest) = image.split_once("@sha256:").expect("name@digest");
    let (_, tag) = name.rsplit_once(":v").expect("image:vX.Y.Z");
    let parts: Vec<u32> = tag
        .split('.')
        .map(|part| part.parse().expect("a number"))
        .collect();
    let [major, minor, patch] = parts[..] else {
        panic!("{tag} is not X.Y.Z");
    };
    (major, minor, patch)
}

#[test]
fn three_members_of_one_recent_etcd() {
    let compose = Compose::read();
    let members = compose.members();
    assert_eq!(members.len(), 3);
    let images: BTreeSet<_> = members
        .values()
        .map(|member| member["image"].as_str())
        .collect();
    assert_eq!(images.len(), 1, "{images:?}");
    let image = images.into_iter().next().flatten().expect("an image");
    assert!(version(image) >= ETCD_MINIMUM, "{image}");
    let text = read("docker-compose.yml");
    assert_eq!(text.matches("etcd:v").count(), 1, "the image is named once");
}

#[test]
fn members_know_each_other() {
    let compose = Compose::read();
    let members = compose.members();
    let mut peers = Vec::new();
    for (name, member) in &members {
        assert_eq!(environment(member, "ETCD_NAME"), *name);
        let peer = environment(member, "ETCD_INITIAL_ADVERTISE_PEER_URLS");
        assert_eq!(peer, format!("https://{name}:2380"));
        assert!(environment(member, "ETCD_LISTEN_PEER_URLS").ends_with(":2380"));
        assert!(environment(member, "ETCD_LISTEN_CLIENT_URLS").ends_with(":2379"));
        peers.push(format!("{name}={peer}"));
        let data = environment(member, "ETCD_DATA_DIR");
        assert_eq!(
            texts(&member["volumes"]),
            [format!("{name}:{data}"), CERTIFICATES_VOLUME.to_owned()]
        );
        assert!(
            compose.file["volumes"].get(*name).is_some(),
            "{name} has no volume"
        );
    }
    for member in members.values() {
        assert_eq!(environment(member, "ETCD_INITIAL_CLUSTER"), peers.join(","));
    }
}

#[test]
fn the_server_is_configured_with_the_advertised_urls() {
    let compose = Compose::read();
    let flags = compose.flags();
    let received: BTreeSet<_> = flags["--etcd-servers"].split(',').collect();
    let advertised: BTreeSet<_> = compose
        .members()
        .values()
        .map(|member| environment(member, "ETCD_ADVERTISE_CLIENT_URLS"))
        .collect();
    assert_eq!(received, advertised);
    let waits: BTreeSet<_> = compose.server()["depends_on"]
        .as_object()
        .expect("it waits for the members")
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(waits, compose.members().into_keys().collect());
}

#[test]
fn every_flag_is_one_of_the_binary() {
    let help = Command::new(env!("CARGO_BIN_EXE_watchet"))
        .args(["serve", "--help"])
        .output()
        .expect("the binary runs");
    assert!(help.status.success(), "{help:?}");
    let help = String::from_utf8(help.stdout).expect("help is UTF-8");
    let known: BTreeSet<&str> = help
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '-')
        .filter(|word| word.starts_with("--"))
        .collect();
    assert!(known.contains("--etcd-servers"), "{help}");
    let mut used: BTreeSet<String> = Compose::read().flags().into_keys().collect();
    used.extend(
        image_command()
            .into_iter()
            .filter(|word| word.starts_with("--")),
    );
    for flag in used {
        assert!(known.contains(flag.as_str()), "{flag} is not in:\n{help}");
    }
}

/// Returns the default command of the image.
fn image_command() -> Vec<String> {
    let dockerfile = read("Dockerfile");
    let line = dockerfile
        .lines()
        .find_map(|line| line.strip_prefix("CMD "));
    texts(&serde_json::from_str(line.expect("a CMD line")).expect("exec form"))
}

#[test]
fn ports_and_directories_agree() {
    let compose = Compose::read();
    let flags = compose.flags();
    let port = &flags["--secure-port"];
    let published = texts(&compose.server()["ports"]);
    assert!(
        published.iter().all(|p| p.ends_with(&format!(":{port}"))),
        "{published:?}"
    );
    assert_eq!(
        flags["--bind-address"], "0.0.0.0",
        "a container's loopback is its own"
    );
    assert_eq!(flags["--storage"], "etcd");
    let data = &flags["--data-dir"];
    let volumes = texts(&compose.server()["volumes"]);
    let certificates = CERTIFICATES_VOLUME.to_owned();
    assert_eq!(volumes, [format!("watchet:{data}"), certificates]);
    let dockerfile = read("Dockerfile");
    for line in [format!("EXPOSE {port}"), format!("VOLUME {data}")] {
        assert!(
            dockerfile.lines().any(|other| other == line),
            "{line} in Dockerfile"
        );
    }
    let own = image_command();
    assert!(
        own.contains(data),
        "the image's own command uses the volume"
    );
    let address = own.windows(2).find(|pair| pair[0] == "--bind-address");
    assert_eq!(address.expect("it says where it listens")[1], "0.0.0.0");
}

/// The files that git ignores (keys, stores) must not be part of the build context.
#[test]
fn the_build_sees_nothing_that_is_ignored() {
    let without = read(".dockerignore");
    let without: BTreeSet<&str> = without.lines().collect();
    let ignored = read(".gitignore");
    for pattern in ignored.lines().filter_map(|line| line.strip_prefix('/')) {
        assert!(without.contains(pattern), "{pattern} in .dockerignore");
    }
}

#[test]
fn the_image_is_built_with_the_stated_compiler() {
    let manifest = read("Cargo.toml");
    let stated = manifest
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = "))
        .expect("rust-version");
    let image = format!("FROM rust:{}-", stated.trim_matches('"'));
    assert!(read("Dockerfile").contains(&image), "{image} in Dockerfile");
}

#[test]
fn images_have_digests() {
    let dockerfile = read("Dockerfile");
    let images = dockerfile
        .lines()
        .filter_map(|line| line.strip_prefix("FROM "));
    for image in images {
        assert!(image.contains("@sha256:"), "{image}");
    }
}

#[test]
fn the_server_can_read_its_key() {
    let compose = Compose::read();
    let arguments = texts(&compose.services()["certificates"]["command"]);
    let owner = arguments[0].strip_prefix("--client-owner=");
    let user = format!("useradd --system --uid {} ", owner.expect("an owner"));
    assert!(read("Dockerfile").contains(&user), "{user}");
}
