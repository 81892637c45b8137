//! The one table of every setting's name, default and help.

use super::{Setting, Spec};

const SERVING: &str = "Serving";
const AUTHENTICATION: &str = "Authentication";
const STORAGE: &str = "Storage";
const WATCH_CACHE: &str = "Watch cache";
const SERVICES: &str = "Services";
const ADMISSION: &str = "Admission";
const CONTROLLERS: &str = "Controllers";
const PROCESS: &str = "Process";

/// Every setting, in the order of the help and of `config/watchet.yaml`.
pub(in crate::server) const SPECS: [Spec; 32] = [
    Spec {
        setting: Setting::BindAddress,
        name: "bind-address",
        value_name: "IP",
        default: "127.0.0.1",
        heading: SERVING,
        help: "IP address to listen on; 0.0.0.0 or :: for all interfaces",
    },
    Spec {
        setting: Setting::SecurePort,
        name: "secure-port",
        value_name: "PORT",
        default: "6443",
        heading: SERVING,
        help: "Port of HTTPS; 0 uses a free one, which the kubeconfig then contains",
    },
    Spec {
        setting: Setting::InsecurePort,
        name: "insecure-port",
        value_name: "PORT",
        default: "0",
        heading: SERVING,
        help: "Port of plain HTTP/1.1 and h2c WITHOUT AUTHENTICATION, for load tests and curl; \
               allowed on a loopback address only; 0 is off, `auto` takes a free port",
    },
    Spec {
        setting: Setting::TlsCertFile,
        name: "tls-cert-file",
        value_name: "FILE",
        default: "",
        heading: SERVING,
        help: "PEM file with the serving certificate, followed by its chain \
               [default: one signed by the CA in <data-dir>/pki]",
    },
    Spec {
        setting: Setting::TlsPrivateKeyFile,
        name: "tls-private-key-file",
        value_name: "FILE",
        default: "",
        heading: SERVING,
        help: "PEM file with the private key of --tls-cert-file",
    },
    Spec {
        setting: Setting::WriteKubeconfig,
        name: "write-kubeconfig",
        value_name: "FILE",
        default: "",
        heading: AUTHENTICATION,
        help: "Where to write a kubeconfig with an admin credential, mode 0600 \
               [default: <data-dir>/kubeconfig]",
    },
    Spec {
        setting: Setting::ClientCaFile,
        name: "client-ca-file",
        value_name: "FILE",
        default: "",
        heading: AUTHENTICATION,
        help: "PEM file with more CAs whose client certificates are accepted (user: common name, \
               groups: organizations); the CA in <data-dir>/pki always is",
    },
    Spec {
        setting: Setting::TokenAuthFile,
        name: "token-auth-file",
        value_name: "FILE",
        default: "",
        heading: AUTHENTICATION,
        help: "CSV file of accepted bearer tokens, one per line: token,user,uid[,\"group1,group2\"]",
    },
    Spec {
        setting: Setting::ServiceAccountIssuer,
        name: "service-account-issuer",
        value_name: "URL,...",
        default: "https://kubernetes.default.svc.cluster.local",
        heading: AUTHENTICATION,
        help: "Who issues the tokens of service accounts; tokens of the second and later ones are \
               accepted too",
    },
    Spec {
        setting: Setting::ServiceAccountKeyFile,
        name: "service-account-key-file",
        value_name: "FILE,...",
        default: "",
        heading: AUTHENTICATION,
        help: "PEM files with more keys whose signatures of service accounts' tokens are believed; \
               the key that signs always is",
    },
    Spec {
        setting: Setting::ServiceAccountSigningKeyFile,
        name: "service-account-signing-key-file",
        value_name: "FILE",
        default: "",
        heading: AUTHENTICATION,
        help: "PEM file with the private key (RSA, or ECDSA with P-256 or P-384) that signs service \
               accounts' tokens; give the same to all servers of one etcd \
               [default: one kept in <data-dir>/pki]",
    },
    Spec {
        setting: Setting::ApiAudiences,
        name: "api-audiences",
        value_name: "NAME,...",
        default: "",
        heading: AUTHENTICATION,
        help: "Accepted audiences of service account tokens \
               [default: --service-account-issuer]",
    },
    Spec {
        setting: Setting::DataDir,
        name: "data-dir",
        value_name: "DIR",
        default: "./.watchet",
        heading: STORAGE,
        help: "Directory of the embedded store, and with every kind of storage of the CA, the \
               certificates and the kubeconfig; one process at a time may use it",
    },
    Spec {
        setting: Setting::Storage,
        name: "storage",
        value_name: "KIND",
        default: "embedded",
        heading: STORAGE,
        help: "Storage of objects: `embedded` (in --data-dir), `memory` (lost at exit) or \
               `etcd` (see --etcd-servers)",
    },
    Spec {
        setting: Setting::Durability,
        name: "durability",
        value_name: "WHEN",
        default: "fsync",
        heading: STORAGE,
        help: "When the embedded store forces writes to disk: `fsync` (before each is \
               acknowledged), `interval` (often, in the background) or `none` (at exit)",
    },
    Spec {
        setting: Setting::EtcdServers,
        name: "etcd-servers",
        value_name: "URL,...",
        default: "",
        heading: STORAGE,
        help: "etcd endpoints, e.g. http://127.0.0.1:2379; needed by --storage etcd",
    },
    Spec {
        setting: Setting::EtcdPrefix,
        name: "etcd-prefix",
        value_name: "PATH",
        default: "/registry",
        heading: STORAGE,
        help: "Prefix of all keys in etcd",
    },
    Spec {
        setting: Setting::EtcdCafile,
        name: "etcd-cafile",
        value_name: "FILE",
        default: "",
        heading: STORAGE,
        help: "PEM file with the CA of etcd's serving certificates",
    },
    Spec {
        setting: Setting::EtcdCertfile,
        name: "etcd-certfile",
        value_name: "FILE",
        default: "",
        heading: STORAGE,
        help: "PEM file with the client certificate for etcd",
    },
    Spec {
        setting: Setting::EtcdKeyfile,
        name: "etcd-keyfile",
        value_name: "FILE",
        default: "",
        heading: STORAGE,
        help: "PEM file with the private key of --etcd-certfile",
    },
    Spec {
        setting: Setting::EtcdCompactionInterval,
        name: "etcd-compaction-interval",
        value_name: "DURATION",
        default: "5m0s",
        heading: STORAGE,
        help: "Minimum retention of history (which a reconnecting client resumes from), in any \
               kind of storage; 0 retains it until another program compacts etcd, or forever",
    },
    Spec {
        setting: Setting::WatchHistoryWindow,
        name: "watch-history-window",
        value_name: "DURATION",
        default: "1m15s",
        heading: WATCH_CACHE,
        help: "How long each cache remembers changes, for watches that lag or come back; below a minute, \
               the time between two bookmarks, an idle watch may be unable to resume",
    },
    Spec {
        setting: Setting::WatchHistoryBytesMax,
        name: "watch-history-bytes-max",
        value_name: "BYTES",
        default: "256Mi",
        heading: WATCH_CACHE,
        help: "Maximum memory for the history of one resource, even before the window is over",
    },
    Spec {
        setting: Setting::WatchCacheConsistencyCheckInterval,
        name: "watch-cache-consistency-check-interval",
        value_name: "DURATION",
        default: "0",
        heading: WATCH_CACHE,
        help: "How often each cache is compared with a list from storage; 0 is never",
    },
    Spec {
        setting: Setting::ServiceClusterIpRange,
        name: "service-cluster-ip-range",
        value_name: "CIDR[,CIDR]",
        default: "10.96.0.0/12",
        heading: SERVICES,
        help: "Where the addresses of services come from; two ranges of different families, with a \
               comma between, make a cluster of both, and the first is that of services that do not \
               say which they want",
    },
    Spec {
        setting: Setting::EnableAdmissionPlugins,
        name: "enable-admission-plugins",
        value_name: "NAME,...",
        default: "",
        heading: ADMISSION,
        help: "Admission plugins that run beside the default ones, under kube-apiserver's names: \
               OwnerReferencesPermissionEnforcement, or any default one; NodeRestriction has no effect \
               yet",
    },
    Spec {
        setting: Setting::DisableAdmissionPlugins,
        name: "disable-admission-plugins",
        value_name: "NAME,...",
        default: "",
        heading: ADMISSION,
        help: "Default admission plugins that do not run, e.g. ServiceAccount; a name that is unknown \
               is answered with those that are known",
    },
    Spec {
        setting: Setting::AdmissionControlConfigFile,
        name: "admission-control-config-file",
        value_name: "FILE",
        default: "",
        heading: ADMISSION,
        help: "AdmissionConfiguration (apiserver.config.k8s.io/v1) in YAML or JSON with the configurations \
               of PodSecurity, ResourceQuota, MutatingAdmissionWebhook and ValidatingAdmissionWebhook",
    },
    Spec {
        setting: Setting::Controllers,
        name: "controllers",
        value_name: "NAME,...",
        default: "*",
        heading: CONTROLLERS,
        help: "Which controllers run inside: `*` is all, `NAME` is that one, `-NAME` is not that one \
               (`*,-NAME` all others, `-NAME` alone none); a name that there is not is answered \
               with those that there are",
    },
    Spec {
        setting: Setting::ShutdownGracePeriod,
        name: "shutdown-grace-period",
        value_name: "DURATION",
        default: "30s",
        heading: PROCESS,
        help: "Time limit for requests in flight after SIGTERM or SIGINT",
    },
    Spec {
        setting: Setting::LogLevel,
        name: "log-level",
        value_name: "LEVEL",
        default: "info",
        heading: PROCESS,
        help: "`error`, `warn`, `info`, `debug` or `trace`; a filter such as \
               `info,watchet::cacher=debug`; or a number as upstream's -v takes",
    },
    Spec {
        setting: Setting::LogFormat,
        name: "log-format",
        value_name: "FORMAT",
        default: "text",
        heading: PROCESS,
        help: "Format of log lines on stderr: `text` or `json`",
    },
];
