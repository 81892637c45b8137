//! The flags of kube-apiserver 1.36: names, types, and the help of those with an effect.

use std::sync::LazyLock;

use crate::server::config::flags::{Spec, specs};
use crate::server::envtest::command_line::{Flag, Kind};

/// Flags with an effect. A flag with the name of a setting sets it.
const SERVED: &[Flag] = &[
    Flag::new(
        "bind-address",
        Kind::Text,
        "IP address to listen on [default: 0.0.0.0]",
    ),
    Flag::new("secure-port", Kind::Int, "Port of HTTPS [default: 6443]"),
    Flag::new(
        "cert-dir",
        Kind::Text,
        "Directory of the serving certificate, apiserver.crt and apiserver.key, unless --tls-cert-file \
         names one; if it has none, a certificate is made there",
    ),
    Flag::new(
        "tls-cert-file",
        Kind::Text,
        "PEM file with the serving certificate, followed by its chain",
    ),
    Flag::new(
        "tls-private-key-file",
        Kind::Text,
        "PEM file with the private key of --tls-cert-file",
    ),
    Flag::new(
        "tls-min-version",
        Kind::Text,
        "Lowest TLS version: VersionTLS12 or VersionTLS13 [default: VersionTLS12]",
    ),
    Flag::new(
        "tls-cipher-suites",
        Kind::List,
        "Allowed cipher suites of TLS 1.2, by their IANA names [default: all that are secure]",
    ),
    Flag::new(
        "enable-priority-and-fairness",
        Kind::Bool,
        "Whether FlowSchemas and PriorityLevelConfigurations limit requests [default: true]",
    ),
    Flag::new(
        "max-requests-inflight",
        Kind::Int,
        "Maximum number of reads in flight, without watches; 0 is no limit [default: 400]",
    ),
    Flag::new(
        "max-mutating-requests-inflight",
        Kind::Int,
        "Maximum number of writes in flight; 0 is no limit [default: 200]",
    ),
    Flag::new(
        "request-timeout",
        Kind::Duration,
        "Time limit of a request that is not a watch [default: 1m0s]",
    ),
    Flag::new(
        "client-ca-file",
        Kind::Text,
        "PEM file with the CAs of client certificates (user: common name, groups: organizations)",
    ),
    Flag::new(
        "token-auth-file",
        Kind::Text,
        "CSV file of accepted bearer tokens, one per line: token,user,uid[,\"group1,group2\"]",
    ),
    Flag::new(
        "service-account-issuer",
        Kind::List,
        "Issuer of service account tokens; tokens of the second and later ones are accepted too",
    ),
    Flag::new(
        "service-account-key-file",
        Kind::List,
        "PEM files with keys or certificates that verify service account tokens",
    ),
    Flag::new(
        "service-account-signing-key-file",
        Kind::Text,
        "PEM file with the private key that signs service account tokens",
    ),
    Flag::new(
        "api-audiences",
        Kind::List,
        "Audiences of service account tokens that are accepted [default: --service-account-issuer]",
    ),
    Flag::new(
        "service-cluster-ip-range",
        Kind::Text,
        "CIDR of the addresses of services, or one of each family with a comma between \
         [default: 10.0.0.0/24]",
    ),
    Flag::new(
        "admission-control-config-file",
        Kind::Text,
        "AdmissionConfiguration with the configurations of admission plugins",
    ),
    Flag::new(
        "etcd-servers",
        Kind::List,
        "URLs of etcd: of watchet called as etcd, whose data directory then has the store, or of a \
         real etcd",
    ),
    Flag::new(
        "etcd-prefix",
        Kind::Text,
        "Prefix of all keys [default: /registry]",
    ),
    Flag::new("etcd-cafile", Kind::Text, "PEM file with the CA of etcd"),
    Flag::new(
        "etcd-certfile",
        Kind::Text,
        "PEM file with the client certificate for etcd",
    ),
    Flag::new(
        "etcd-keyfile",
        Kind::Text,
        "PEM file with the private key of --etcd-certfile",
    ),
    Flag::new(
        "storage-media-type",
        Kind::Text,
        "Encoding of stored objects: application/json or application/vnd.kubernetes.protobuf [default: application/json]",
    ),
    Flag::new(
        "encryption-provider-config",
        Kind::Text,
        "EncryptionConfiguration: which resources are stored encrypted, and how",
    ),
    Flag::new(
        "encryption-provider-config-automatic-reload",
        Kind::Bool,
        "Apply changes of --encryption-provider-config without a restart [default: false]",
    ),
    Flag::new(
        "tracing-config-file",
        Kind::Text,
        "TracingConfiguration: the collector of traces, and how many requests are traced",
    ),
    Flag::new(
        "etcd-compaction-interval",
        Kind::Duration,
        "Minimum retention of history; 0 disables compaction [default: 5m0s]",
    ),
    Flag::new(
        "logging-format",
        Kind::Text,
        "Format of log lines: text or json [default: text]",
    ),
    Flag {
        short: Some('v'),
        ..Flag::new(
            "v",
            Kind::Int,
            "Verbosity: 4 adds debug, 6 trace [default: 0]",
        )
    },
    Flag {
        short: Some('h'),
        ..Flag::new("help", Kind::Bool, "Print this help")
    },
    Flag::new("version", Kind::Bool, "Print the version"),
];

/// Booleans without an effect.
const BOOLS: &[&str] = &[
    "aggregator-reject-forwarding-redirect",
    "allow-privileged",
    "anonymous-auth",
    "audit-log-batch-throttle-enable",
    "audit-log-compress",
    "audit-log-truncate-enabled",
    "audit-webhook-batch-throttle-enable",
    "audit-webhook-truncate-enabled",
    "contention-profiling",
    "disable-http2-serving",
    "emulation-forward-compatible",
    "enable-aggregator-routing",
    "enable-bootstrap-token-auth",
    "enable-garbage-collector",
    "enable-logs-handler",
    "log-json-split-stream",
    "log-text-split-stream",
    "permit-address-sharing",
    "permit-port-sharing",
    "profiling",
    "runtime-config-emulation-forward-compatible",
    "service-account-extend-token-expiration",
    "service-account-lookup",
    "shutdown-send-retry-after",
    "watch-cache",
];

/// Integers without an effect.
const INTS: &[&str] = &[
    "apiserver-count",
    "audit-log-batch-buffer-size",
    "audit-log-batch-max-size",
    "audit-log-batch-throttle-burst",
    "audit-log-maxage",
    "audit-log-maxbackup",
    "audit-log-maxsize",
    "audit-log-truncate-max-batch-size",
    "audit-log-truncate-max-event-size",
    "audit-webhook-batch-buffer-size",
    "audit-webhook-batch-max-size",
    "audit-webhook-batch-throttle-burst",
    "audit-webhook-truncate-max-batch-size",
    "audit-webhook-truncate-max-event-size",
    "default-not-ready-toleration-seconds",
    "default-unreachable-toleration-seconds",
    "default-watch-cache-size",
    "delete-collection-workers",
    "http2-max-streams-per-connection",
    "kubelet-port",
    "kubelet-read-only-port",
    "kubernetes-service-node-port",
    "lease-reuse-duration-seconds",
    "max-connection-bytes-per-sec",
    "min-request-timeout",
];

/// Numbers without an effect.
const FLOATS: &[&str] = &[
    "audit-log-batch-throttle-qps",
    "audit-webhook-batch-throttle-qps",
    "goaway-chance",
];

/// Durations without an effect.
const DURATIONS: &[&str] = &[
    "audit-log-batch-max-wait",
    "audit-webhook-batch-initial-backoff",
    "audit-webhook-batch-max-wait",
    "audit-webhook-initial-backoff",
    "authentication-token-webhook-cache-ttl",
    "authorization-webhook-cache-authorized-ttl",
    "authorization-webhook-cache-unauthorized-ttl",
    "coordinated-leadership-lease-duration",
    "coordinated-leadership-renew-deadline",
    "coordinated-leadership-retry-period",
    "etcd-count-metric-poll-period",
    "etcd-db-metric-poll-interval",
    "etcd-healthcheck-timeout",
    "etcd-readycheck-timeout",
    "event-ttl",
    "kubelet-timeout",
    "livez-grace-period",
    "log-flush-frequency",
    "service-account-max-token-expiration",
    "shutdown-delay-duration",
    "shutdown-watch-termination-grace-period",
    "storage-initialization-timeout",
];

/// Texts without an effect.
const TEXTS: &[&str] = &[
    "advertise-address",
    "allow-metric-labels-manifest",
    "audit-log-format",
    "audit-log-mode",
    "audit-log-path",
    "audit-log-version",
    "audit-policy-file",
    "audit-webhook-config-file",
    "audit-webhook-mode",
    "audit-webhook-version",
    "authentication-config",
    "authentication-token-webhook-config-file",
    "authentication-token-webhook-version",
    "authorization-config",
    "authorization-policy-file",
    "authorization-webhook-config-file",
    "authorization-webhook-version",
    "debug-socket-path",
    "egress-selector-config-file",
    "endpoint-reconciler-type",
    "external-hostname",
    "kubelet-certificate-authority",
    "kubelet-client-certificate",
    "kubelet-client-key",
    "log-json-info-buffer-size",
    "log-text-info-buffer-size",
    "oidc-ca-file",
    "oidc-client-id",
    "oidc-groups-claim",
    "oidc-groups-prefix",
    "oidc-issuer-url",
    "oidc-username-claim",
    "oidc-username-prefix",
    "peer-advertise-ip",
    "peer-advertise-port",
    "peer-ca-file",
    "proxy-client-cert-file",
    "proxy-client-key-file",
    "requestheader-client-ca-file",
    "service-account-jwks-uri",
    "service-account-signing-endpoint",
    "service-node-port-range",
    "show-hidden-metrics-for-version",
    "storage-backend",
    "vmodule",
];

/// Lists and maps without an effect.
const LISTS: &[&str] = &[
    "admission-control",
    "allow-metric-labels",
    "authorization-mode",
    "cors-allowed-origins",
    "disable-admission-plugins",
    "disabled-metrics",
    "emulated-version",
    "enable-admission-plugins",
    "etcd-servers-overrides",
    "feature-gates",
    "kubelet-preferred-address-types",
    "min-compatibility-version",
    "oidc-required-claim",
    "oidc-signing-algs",
    "requestheader-allowed-names",
    "requestheader-extra-headers-prefix",
    "requestheader-group-headers",
    "requestheader-uid-headers",
    "requestheader-username-headers",
    "runtime-config",
    "strict-transport-security-directives",
    "tls-curve-preferences",
    "tls-sni-cert-key",
    "watch-cache-sizes",
];

/// The flags of `watchet serve`.
static SPECS: LazyLock<Vec<Spec>> = LazyLock::new(specs);

/// Returns every flag. A flag with the name of a setting has an effect, whatever list it is in.
pub(super) fn all() -> Vec<Flag> {
    let ignored = [
        (BOOLS, Kind::Bool),
        (INTS, Kind::Int),
        (FLOATS, Kind::Float),
        (DURATIONS, Kind::Duration),
        (TEXTS, Kind::Text),
        (LISTS, Kind::List),
    ];
    let mut flags = Flag::with_ignored(SERVED, &ignored);
    for flag in flags.iter_mut().filter(|flag| flag.is_ignored()) {
        let spec = SPECS.iter().find(|spec| spec.name == flag.name);
        flag.help = spec.map_or("", |spec| &spec.help);
    }
    flags
}
