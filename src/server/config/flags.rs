//! The flags of `watchet serve`: the only definition of each, with its name, help and default.

use clap::{ArgAction, Args, Command};
use serde::Deserialize;

use crate::server::config::setting_value::SettingValue;

const SERVING: &str = "Serving";
const AUTHENTICATION: &str = "Authentication";
const AUTHORIZATION: &str = "Authorization";
const AUDIT: &str = "Audit";
const STORAGE: &str = "Storage";
const WATCH_CACHE: &str = "Watch cache";
const SERVICES: &str = "Services";
const ADMISSION: &str = "Admission";
const CONTROLLERS: &str = "Controllers";
const PROCESS: &str = "Process";

/// The settings of `watchet serve`, in the order of the help and of `config/watchet.yaml`. The name of a field
/// is that of the flag (`data_dir`: `--data-dir`), of the environment variable (`WATCHET_DATA_DIR`) and of the
/// key in the configuration file (`dataDir`). A setting without a default has an empty text. A setting with
/// `ArgAction::Append` is a list: a repeated flag adds to it, as upstream.
#[derive(Debug, Clone, PartialEq, Eq, Args, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::server) struct Flags {
    /// IP address to listen on; 0.0.0.0 or :: for all interfaces
    #[arg(long, value_name = "IP", default_value = "127.0.0.1", help_heading = SERVING)]
    pub bind_address: SettingValue,
    /// Port of HTTPS; 0 uses a free one, which the kubeconfig then contains
    #[arg(long, value_name = "PORT", default_value = "6443", help_heading = SERVING)]
    pub secure_port: SettingValue,
    /// Port of plain HTTP/1.1 and h2c WITHOUT AUTHENTICATION, for load tests and curl; allowed on a
    /// loopback address only; 0 is off, `auto` takes a free port
    #[arg(long, value_name = "PORT", default_value = "0", help_heading = SERVING)]
    pub insecure_port: SettingValue,
    /// Maximum number of open connections; at the maximum (or at the limit of open files) an idle connection is
    /// closed for each new one
    #[arg(long, value_name = "NUMBER", default_value = "100000", help_heading = SERVING)]
    pub max_connections: SettingValue,
    /// Whether to serve the console at /console/, and to print a link at the start that logs a browser in to it once
    #[arg(long, value_name = "BOOL", default_value = "true", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = SERVING)]
    pub console: SettingValue,
    /// Whether to serve CPU and heap profiles of the server at /debug/pprof/, to users who are authorized to read that path
    #[arg(long, value_name = "BOOL", default_value = "true", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = SERVING)]
    pub profiling: SettingValue,
    #[arg(long, value_name = "FILE", help_heading = SERVING, help = "PEM file with the serving certificate, followed by its chain [default: one signed by the CA in <data-dir>/pki]")]
    pub tls_cert_file: SettingValue,
    /// PEM file with the private key of --tls-cert-file
    #[arg(long, value_name = "FILE", help_heading = SERVING)]
    pub tls_private_key_file: SettingValue,
    #[arg(long, value_name = "CERT,KEY[:NAME,...]", action = ArgAction::Append, help_heading = SERVING, help = "PEM files with a serving certificate and its key for clients that request one of the names, e.g. a.crt,a.key:*.example.com [default names: those of the certificate]; may be repeated; the file and the environment separate pairs by semicolons")]
    pub tls_sni_cert_key: SettingValue,
    /// Further DNS names and addresses for the serving certificate that the server makes
    #[arg(long, value_name = "NAME,...", action = ArgAction::Append, help_heading = SERVING)]
    pub tls_san: SettingValue,
    /// Lowest TLS version: `VersionTLS12` or `VersionTLS13`
    #[arg(long, value_name = "VERSION", default_value = "VersionTLS12", help_heading = SERVING)]
    pub tls_min_version: SettingValue,
    #[arg(long, value_name = "NAME,...", action = ArgAction::Append, help_heading = SERVING, help = "Allowed cipher suites of TLS 1.2, by their IANA names; those of TLS 1.3 are not configurable [default: all that are secure]")]
    pub tls_cipher_suites: SettingValue,
    /// Whether FlowSchemas and PriorityLevelConfigurations decide which requests wait and which get a 429; they share the
    /// sum of the two next limits. Otherwise the limits apply to reads and writes separately
    #[arg(long, value_name = "BOOL", default_value = "true", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = SERVING)]
    pub enable_priority_and_fairness: SettingValue,
    /// Maximum number of reads in flight, without watches; more get a 429; 0 is no limit
    #[arg(long, value_name = "NUMBER", default_value = "400", help_heading = SERVING)]
    pub max_requests_inflight: SettingValue,
    /// Maximum number of writes in flight; more get a 429; 0 is no limit
    #[arg(long, value_name = "NUMBER", default_value = "200", help_heading = SERVING)]
    pub max_mutating_requests_inflight: SettingValue,
    /// Maximum number of open watches of a user; more get a 429; 0 is no limit
    #[arg(long, value_name = "NUMBER", default_value = "0", help_heading = SERVING)]
    pub max_watches_per_user: SettingValue,
    /// Memory that the server uses at most: near it, the caches shrink, and lists and watches get a 429; `auto` is the limit
    /// of the control group (container) less a sixteenth, 0 is no limit
    #[arg(long, value_name = "BYTES", default_value = "auto", help_heading = SERVING)]
    pub memory_limit: SettingValue,
    /// Time limit of a request that is not a watch; `?timeout=` of a request can only lower it
    #[arg(long, value_name = "DURATION", default_value = "1m0s", help_heading = SERVING)]
    pub request_timeout: SettingValue,
    #[arg(long, value_name = "FILE", help_heading = AUTHENTICATION, help = "Where to write a kubeconfig with an admin credential, mode 0600 [default: <data-dir>/kubeconfig]")]
    pub write_kubeconfig: SettingValue,
    #[arg(long, value_name = "FILE", help_heading = AUTHENTICATION, help = "PEM file with CAs whose client certificates are accepted (user: common name, groups: organizations), in addition to the CA in <data-dir>/pki")]
    pub client_ca_file: SettingValue,
    /// AuthenticationConfiguration (apiserver.config.k8s.io/v1) in YAML or JSON: issuers of accepted JSON Web Tokens
    /// (OIDC), how their claims become users, and which requests may be anonymous; excludes the --oidc- flags
    #[arg(long, value_name = "FILE", help_heading = AUTHENTICATION)]
    pub authentication_config: SettingValue,
    #[arg(long, value_name = "BOOL", help_heading = AUTHENTICATION, help = "Whether requests without credentials are those of system:anonymous, or are rejected [default: rejected except for health checks and the version]")]
    pub anonymous_auth: SettingValue,
    /// URL of the issuer of accepted JSON Web Tokens, as in their claim `iss`
    #[arg(long, value_name = "URL", help_heading = AUTHENTICATION)]
    pub oidc_issuer_url: SettingValue,
    /// Audience that tokens of --oidc-issuer-url must have
    #[arg(long, value_name = "ID", help_heading = AUTHENTICATION)]
    pub oidc_client_id: SettingValue,
    /// Claim with the user name
    #[arg(long, value_name = "CLAIM", default_value = "sub", help_heading = AUTHENTICATION)]
    pub oidc_username_claim: SettingValue,
    #[arg(long, value_name = "PREFIX", help_heading = AUTHENTICATION, help = "What precedes the user name; `-` for nothing [default: <oidc-issuer-url># unless the claim is email]")]
    pub oidc_username_prefix: SettingValue,
    /// Claim with the groups: a string or strings
    #[arg(long, value_name = "CLAIM", help_heading = AUTHENTICATION)]
    pub oidc_groups_claim: SettingValue,
    /// What precedes each group
    #[arg(long, value_name = "PREFIX", help_heading = AUTHENTICATION)]
    pub oidc_groups_prefix: SettingValue,
    /// Claims that tokens must have, with their values
    #[arg(long, value_name = "CLAIM=VALUE,...", action = ArgAction::Append, help_heading = AUTHENTICATION)]
    pub oidc_required_claim: SettingValue,
    /// Allowed signing algorithms of tokens, of RFC 7518
    #[arg(long, value_name = "ALG,...", default_value = "RS256", action = ArgAction::Append, help_heading = AUTHENTICATION)]
    pub oidc_signing_algs: SettingValue,
    #[arg(long, value_name = "FILE", help_heading = AUTHENTICATION, help = "PEM file with the CAs of --oidc-issuer-url [default: those of the system]")]
    pub oidc_ca_file: SettingValue,
    /// Kubeconfig of a webhook that reviews the bearer tokens that no other authenticator accepts
    #[arg(long, value_name = "FILE", help_heading = AUTHENTICATION)]
    pub authentication_token_webhook_config_file: SettingValue,
    /// Time for which a response of the token webhook is cached; 0 disables the cache
    #[arg(long, value_name = "DURATION", default_value = "2m0s", help_heading = AUTHENTICATION)]
    pub authentication_token_webhook_cache_ttl: SettingValue,
    /// Version of the TokenReview for the webhook: `v1` or `v1beta1`
    #[arg(long, value_name = "VERSION", default_value = "v1beta1", help_heading = AUTHENTICATION)]
    pub authentication_token_webhook_version: SettingValue,
    #[arg(long, value_name = "FILE", help_heading = AUTHENTICATION, help = "CSV file of accepted bearer tokens, one per line: token,user,uid[,\"group1,group2\"]")]
    pub token_auth_file: SettingValue,
    /// PEM file with the CAs of front proxies, which send the user of a request in headers
    #[arg(long, value_name = "FILE", help_heading = AUTHENTICATION)]
    pub requestheader_client_ca_file: SettingValue,
    #[arg(long, value_name = "NAME,...", action = ArgAction::Append, help_heading = AUTHENTICATION, help = "Common names of the certificates of front proxies [default: any]")]
    pub requestheader_allowed_names: SettingValue,
    /// Headers with the user name, e.g. X-Remote-User; the first that is not empty counts
    #[arg(long, value_name = "NAME,...", action = ArgAction::Append, help_heading = AUTHENTICATION)]
    pub requestheader_username_headers: SettingValue,
    /// Headers with the unique ID of the user, e.g. X-Remote-Uid
    #[arg(long, value_name = "NAME,...", action = ArgAction::Append, help_heading = AUTHENTICATION)]
    pub requestheader_uid_headers: SettingValue,
    /// Headers with groups, e.g. X-Remote-Group
    #[arg(long, value_name = "NAME,...", action = ArgAction::Append, help_heading = AUTHENTICATION)]
    pub requestheader_group_headers: SettingValue,
    /// Prefixes of headers with further attributes of the user, e.g. X-Remote-Extra-
    #[arg(long, value_name = "PREFIX,...", action = ArgAction::Append, help_heading = AUTHENTICATION)]
    pub requestheader_extra_headers_prefix: SettingValue,
    /// Issuers of service account tokens: the first is written into new tokens, tokens of all are accepted
    #[arg(long, value_name = "URL,...", default_value = "https://kubernetes.default.svc.cluster.local", action = ArgAction::Append, help_heading = AUTHENTICATION)]
    pub service_account_issuer: SettingValue,
    /// PEM files with keys that verify service account tokens, in addition to the key that signs them
    #[arg(long, value_name = "FILE,...", action = ArgAction::Append, help_heading = AUTHENTICATION)]
    pub service_account_key_file: SettingValue,
    #[arg(long, value_name = "FILE", help_heading = AUTHENTICATION, help = "PEM file with the private key (RSA, or ECDSA with P-256 or P-384) that signs service account tokens; all servers of one etcd need the same [default: one stored in <data-dir>/pki]")]
    pub service_account_signing_key_file: SettingValue,
    /// Maximum validity of service account tokens, 1h or more; longer requests get this one; 0 is no limit
    #[arg(long, value_name = "DURATION", default_value = "0", help_heading = AUTHENTICATION)]
    pub service_account_max_token_expiration: SettingValue,
    /// Extend the validity of tokens that kubelets request for the volumes of pods (bound to the pod, for this server, 3607
    /// seconds) to 365 days, whatever --service-account-max-token-expiration is; a use after the 3607 seconds is counted and
    /// audited
    #[arg(long, value_name = "BOOL", default_value = "true", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = AUTHENTICATION)]
    pub service_account_extend_token_expiration: SettingValue,
    #[arg(long, value_name = "NAME,...", action = ArgAction::Append, help_heading = AUTHENTICATION, help = "Accepted audiences of service account tokens [default: --service-account-issuer]")]
    pub api_audiences: SettingValue,
    /// Authorization modes, consulted in order until one allows or denies the request: `RBAC` (roles and bindings, as
    /// in kube-apiserver), `Node` (kubelets, with `RBAC` after it), `Webhook` (see
    /// --authorization-webhook-config-file), `AlwaysAllow` (every authenticated user may do everything) or
    /// `AlwaysDeny`; system:masters may always do everything
    #[arg(long, value_name = "MODE,...", default_value = "RBAC", action = ArgAction::Append, help_heading = AUTHORIZATION)]
    pub authorization_mode: SettingValue,
    /// AuthorizationConfiguration (apiserver.config.k8s.io/v1) in YAML or JSON: the authorizers in their order, with any
    /// number of webhooks; instead of --authorization-mode; a change takes effect without a restart
    #[arg(long, value_name = "FILE", help_heading = AUTHORIZATION)]
    pub authorization_config: SettingValue,
    /// Kubeconfig with the URL, the CA and the credentials of the webhook that reviews requests; needs
    /// --authorization-mode=Webhook
    #[arg(long, value_name = "FILE", help_heading = AUTHORIZATION)]
    pub authorization_webhook_config_file: SettingValue,
    /// Version of the SubjectAccessReview for the webhook: `v1` or `v1beta1`
    #[arg(long, value_name = "VERSION", default_value = "v1beta1", help_heading = AUTHORIZATION)]
    pub authorization_webhook_version: SettingValue,
    /// Time for which a response of the webhook that allows a request is cached; 0 disables the cache
    #[arg(long, value_name = "DURATION", default_value = "5m0s", help_heading = AUTHORIZATION)]
    pub authorization_webhook_cache_authorized_ttl: SettingValue,
    /// Time for which any other response of the webhook is cached; 0 disables the cache
    #[arg(long, value_name = "DURATION", default_value = "30s", help_heading = AUTHORIZATION)]
    pub authorization_webhook_cache_unauthorized_ttl: SettingValue,
    /// Policy (audit.k8s.io/v1) in YAML or JSON: selects the requests that are recorded, and the level of their events
    #[arg(long, value_name = "FILE", help_heading = AUDIT)]
    pub audit_policy_file: SettingValue,
    /// File of the audit log, one JSON event per line; `-` is stdout; needs --audit-policy-file
    #[arg(long, value_name = "FILE", help_heading = AUDIT)]
    pub audit_log_path: SettingValue,
    /// Maximum age of rotated audit logs in days; 0 is no limit
    #[arg(long, value_name = "DAYS", default_value = "0", help_heading = AUDIT)]
    pub audit_log_maxage: SettingValue,
    /// Maximum number of rotated audit logs; 0 is no limit
    #[arg(long, value_name = "NUMBER", default_value = "0", help_heading = AUDIT)]
    pub audit_log_maxbackup: SettingValue,
    /// Size in MiB at which the audit log is rotated; 0 is 100
    #[arg(long, value_name = "MIB", default_value = "0", help_heading = AUDIT)]
    pub audit_log_maxsize: SettingValue,
    /// Compress rotated audit logs with gzip
    #[arg(long, value_name = "BOOL", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = AUDIT)]
    pub audit_log_compress: SettingValue,
    /// Format of the audit log: `json`, or `legacy`, one line of text per event with its most important members
    #[arg(long, value_name = "FORMAT", default_value = "json", help_heading = AUDIT)]
    pub audit_log_format: SettingValue,
    /// API version of the events in the log; audit.k8s.io/v1 is the only one
    #[arg(long, value_name = "VERSION", default_value = "audit.k8s.io/v1", help_heading = AUDIT)]
    pub audit_log_version: SettingValue,
    /// When events are written to the log: `batch` (together, see --audit-log-batch-max-wait; events are dropped and
    /// counted if too many wait), `blocking` (before the request continues) or `blocking-strict` (a request is also
    /// rejected if its event `RequestReceived` cannot be written)
    #[arg(long, value_name = "MODE", default_value = "batch", help_heading = AUDIT)]
    pub audit_log_mode: SettingValue,
    /// Maximum number of events that wait for the log; further ones are dropped and counted; only with mode `batch`
    #[arg(long, value_name = "NUMBER", default_value = "10000", help_heading = AUDIT)]
    pub audit_log_batch_buffer_size: SettingValue,
    /// Maximum number of events that are written to the log together; only with mode `batch`
    #[arg(long, value_name = "NUMBER", default_value = "5000", help_heading = AUDIT)]
    pub audit_log_batch_max_size: SettingValue,
    /// Maximum time that an event waits for others before it is written; a crash loses the events of this time; only
    /// with mode `batch`
    #[arg(long, value_name = "DURATION", default_value = "100ms", help_heading = AUDIT)]
    pub audit_log_batch_max_wait: SettingValue,
    /// Limit the rate of writes to the log; only with mode `batch`
    #[arg(long, value_name = "BOOL", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = AUDIT)]
    pub audit_log_batch_throttle_enable: SettingValue,
    /// Maximum average number of writes to the log per second; only with --audit-log-batch-throttle-enable
    #[arg(long, value_name = "NUMBER", default_value = "10", help_heading = AUDIT)]
    pub audit_log_batch_throttle_qps: SettingValue,
    /// Maximum number of writes to the log without a pause; only with --audit-log-batch-throttle-enable
    #[arg(long, value_name = "NUMBER", default_value = "15", help_heading = AUDIT)]
    pub audit_log_batch_throttle_burst: SettingValue,
    /// Limit the size of events in the log
    #[arg(long, value_name = "BOOL", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = AUDIT)]
    pub audit_log_truncate_enabled: SettingValue,
    /// Maximum size of an event in the log; a larger one is written without its objects, or not at all; only with
    /// --audit-log-truncate-enabled
    #[arg(long, value_name = "BYTES", default_value = "102400", help_heading = AUDIT)]
    pub audit_log_truncate_max_event_size: SettingValue,
    /// Maximum size of the events that are written to the log together; only with --audit-log-truncate-enabled
    #[arg(long, value_name = "BYTES", default_value = "10485760", help_heading = AUDIT)]
    pub audit_log_truncate_max_batch_size: SettingValue,
    /// Kubeconfig with the URL, the CA and the credentials of the audit webhook, to which events are posted; needs
    /// --audit-policy-file
    #[arg(long, value_name = "FILE", help_heading = AUDIT)]
    pub audit_webhook_config_file: SettingValue,
    /// Delay before a failed request to the webhook is retried; each further delay is 1.5 times as long; after the
    /// fifth failure the events are dropped and counted
    #[arg(long, value_name = "DURATION", default_value = "10s", help_heading = AUDIT)]
    pub audit_webhook_initial_backoff: SettingValue,
    /// API version of the events for the webhook; audit.k8s.io/v1 is the only one
    #[arg(long, value_name = "VERSION", default_value = "audit.k8s.io/v1", help_heading = AUDIT)]
    pub audit_webhook_version: SettingValue,
    /// When events are sent to the webhook: `batch`, `blocking` or `blocking-strict`, as --audit-log-mode
    #[arg(long, value_name = "MODE", default_value = "batch", help_heading = AUDIT)]
    pub audit_webhook_mode: SettingValue,
    /// Maximum number of events that wait for the webhook; further ones are dropped and counted; only with mode `batch`
    #[arg(long, value_name = "NUMBER", default_value = "10000", help_heading = AUDIT)]
    pub audit_webhook_batch_buffer_size: SettingValue,
    /// Maximum number of events of a request to the webhook; only with mode `batch`
    #[arg(long, value_name = "NUMBER", default_value = "400", help_heading = AUDIT)]
    pub audit_webhook_batch_max_size: SettingValue,
    /// Maximum time that an event waits for a complete batch; only with mode `batch`
    #[arg(long, value_name = "DURATION", default_value = "30s", help_heading = AUDIT)]
    pub audit_webhook_batch_max_wait: SettingValue,
    /// Limit the rate of requests to the webhook; only with mode `batch`
    #[arg(long, value_name = "BOOL", default_value = "true", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = AUDIT)]
    pub audit_webhook_batch_throttle_enable: SettingValue,
    /// Maximum average number of requests to the webhook per second; only with --audit-webhook-batch-throttle-enable
    #[arg(long, value_name = "NUMBER", default_value = "10", help_heading = AUDIT)]
    pub audit_webhook_batch_throttle_qps: SettingValue,
    /// Maximum number of requests to the webhook without a pause; only with --audit-webhook-batch-throttle-enable
    #[arg(long, value_name = "NUMBER", default_value = "15", help_heading = AUDIT)]
    pub audit_webhook_batch_throttle_burst: SettingValue,
    /// Limit the size of events and batches for the webhook
    #[arg(long, value_name = "BOOL", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = AUDIT)]
    pub audit_webhook_truncate_enabled: SettingValue,
    /// Maximum size of an event for the webhook; a larger one is sent without its objects, or not at all; only with
    /// --audit-webhook-truncate-enabled
    #[arg(long, value_name = "BYTES", default_value = "102400", help_heading = AUDIT)]
    pub audit_webhook_truncate_max_event_size: SettingValue,
    /// Maximum size of a request to the webhook; only with --audit-webhook-truncate-enabled
    #[arg(long, value_name = "BYTES", default_value = "10485760", help_heading = AUDIT)]
    pub audit_webhook_truncate_max_batch_size: SettingValue,
    /// Directory of the CA, the certificates, the kubeconfig and the embedded store; one process at a time may
    /// use it
    #[arg(long, value_name = "DIR", default_value = "./.watchet", help_heading = STORAGE)]
    pub data_dir: SettingValue,
    /// Storage of objects: `embedded` (in --data-dir), `memory` (lost at exit) or `etcd` (see
    /// --etcd-servers)
    #[arg(long, value_name = "KIND", default_value = "embedded", help_heading = STORAGE)]
    pub storage: SettingValue,
    /// When the embedded store forces writes to disk: `fsync` (before each is acknowledged), `interval`
    /// (every second, in the background) or `none` (once a minute and at exit)
    #[arg(long, value_name = "WHEN", default_value = "fsync", help_heading = STORAGE)]
    pub durability: SettingValue,
    /// etcd endpoints, e.g. http://127.0.0.1:2379; needed by --storage etcd
    #[arg(long, value_name = "URL,...", action = ArgAction::Append, help_heading = STORAGE)]
    pub etcd_servers: SettingValue,
    /// Prefix of all keys in etcd
    #[arg(long, value_name = "PATH", default_value = "/registry", help_heading = STORAGE)]
    pub etcd_prefix: SettingValue,
    /// PEM file with the CA of etcd's serving certificates
    #[arg(long, value_name = "FILE", help_heading = STORAGE)]
    pub etcd_cafile: SettingValue,
    /// PEM file with the client certificate for etcd
    #[arg(long, value_name = "FILE", help_heading = STORAGE)]
    pub etcd_certfile: SettingValue,
    /// PEM file with the private key of --etcd-certfile
    #[arg(long, value_name = "FILE", help_heading = STORAGE)]
    pub etcd_keyfile: SettingValue,
    /// Encoding of the objects that are written to storage: application/json, or application/vnd.kubernetes.protobuf as
    /// kube-apiserver does by default; both are read. Custom resources are always JSON
    #[arg(long, value_name = "TYPE", default_value = "application/json", help_heading = STORAGE)]
    pub storage_media_type: SettingValue,
    /// EncryptionConfiguration (apiserver.config.k8s.io/v1) in YAML or JSON: which resources are stored encrypted, and
    /// with which keys or KMS plugins
    #[arg(long, value_name = "FILE", help_heading = STORAGE)]
    pub encryption_provider_config: SettingValue,
    /// Whether changes of --encryption-provider-config take effect without a restart
    #[arg(long, value_name = "BOOL", default_value = "false", num_args = 0..=1, default_missing_value = "true", require_equals = true, help_heading = STORAGE)]
    pub encryption_provider_config_automatic_reload: SettingValue,
    /// Minimum time for which storage retains history, from which a reconnecting client resumes; 0 retains it
    /// until another program compacts etcd, or forever
    #[arg(long, value_name = "DURATION", default_value = "5m0s", help_heading = STORAGE)]
    pub etcd_compaction_interval: SettingValue,
    /// How long the embedded store, or --storage memory, retains history for reads of past states (`watchet at`, `diff`,
    /// `history`), e.g. 24h; with 0, --etcd-compaction-interval decides. Not for --storage etcd
    #[arg(long, value_name = "DURATION", default_value = "0", help_heading = STORAGE)]
    pub history_retention: SettingValue,
    /// Maximum size on disk of the history that --history-retention retains; the oldest history is removed first
    #[arg(long, value_name = "BYTES", default_value = "1Gi", help_heading = STORAGE)]
    pub history_retention_bytes_max: SettingValue,
    /// Time for which each cache retains events, for watches that lag or resume; with less than a minute, the
    /// time between two bookmarks, an idle watch may be unable to resume
    #[arg(long, value_name = "DURATION", default_value = "1m15s", help_heading = WATCH_CACHE)]
    pub watch_history_window: SettingValue,
    /// Maximum memory for the history of one resource, even if it is shorter than the window
    #[arg(long, value_name = "BYTES", default_value = "256Mi", help_heading = WATCH_CACHE)]
    pub watch_history_bytes_max: SettingValue,
    /// Maximum memory for encodings of objects other than JSON, of all resources together; 0 retains none, and
    /// each response encodes its objects again
    #[arg(long, value_name = "BYTES", default_value = "256Mi", help_heading = WATCH_CACHE)]
    pub encoding_cache_bytes_max: SettingValue,
    /// How often each cache is compared with a list from storage; 0 is never
    #[arg(long, value_name = "DURATION", default_value = "0", help_heading = WATCH_CACHE)]
    pub watch_cache_consistency_check_interval: SettingValue,
    /// Ranges of the cluster IPs of services; two ranges of different families, separated by a comma, make a
    /// dual-stack cluster, and the first is the default family
    #[arg(long, value_name = "CIDR[,CIDR]", default_value = "10.96.0.0/12", help_heading = SERVICES)]
    pub service_cluster_ip_range: SettingValue,
    /// Admission plugins that run beside the default ones, under kube-apiserver's names:
    /// OwnerReferencesPermissionEnforcement, NodeRestriction, or any default one
    #[arg(long, value_name = "NAME,...", action = ArgAction::Append, help_heading = ADMISSION)]
    pub enable_admission_plugins: SettingValue,
    /// Default admission plugins that do not run, e.g. ServiceAccount; the error for an unknown name lists the
    /// known ones
    #[arg(long, value_name = "NAME,...", action = ArgAction::Append, help_heading = ADMISSION)]
    pub disable_admission_plugins: SettingValue,
    /// AdmissionConfiguration (apiserver.config.k8s.io/v1) in YAML or JSON with the configurations of
    /// PodSecurity, ResourceQuota, MutatingAdmissionWebhook and ValidatingAdmissionWebhook
    #[arg(long, value_name = "FILE", help_heading = ADMISSION)]
    pub admission_control_config_file: SettingValue,
    #[arg(long, value_name = "NAME,...", default_value = "*", help_heading = CONTROLLERS, help = "Controllers to run: `*` is all, `NAME` enables one, `-NAME` disables one (`*,-NAME` is all others, `-NAME` alone none); the error for an unknown name lists the known ones")]
    pub controllers: SettingValue,
    /// Time limit for requests in flight after SIGTERM or SIGINT
    #[arg(long, value_name = "DURATION", default_value = "30s", help_heading = PROCESS)]
    pub shutdown_grace_period: SettingValue,
    /// File that exists while the server is ready: a JSON object with its `url`, `kubeconfig` and `pid`; the server deletes
    /// it when it starts and when it drains
    #[arg(long, value_name = "FILE", help_heading = PROCESS)]
    pub ready_file: SettingValue,
    /// End as after SIGTERM when the process that started the server ends, even if it is killed; a process ID names another
    /// process
    #[arg(long, value_name = "BOOL|PID", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = PROCESS)]
    pub exit_with_parent: SettingValue,
    /// TracingConfiguration (apiserver.config.k8s.io/v1) in YAML or JSON: the collector to which traces of requests are
    /// exported by OTLP over gRPC, and how many requests are traced
    #[arg(long, value_name = "FILE", help_heading = PROCESS)]
    pub tracing_config_file: SettingValue,
    /// `error`, `warn`, `info`, `debug` or `trace`; a filter such as `info,watchet_cacher=debug`; or a
    /// number as upstream's -v takes
    #[arg(short = 'v', long, alias = "v", value_name = "LEVEL", default_value = "info", help_heading = PROCESS)]
    pub log_level: SettingValue,
    /// Format of log lines on stderr: `text` or `json`
    #[arg(long, value_name = "FORMAT", default_value = "text", help_heading = PROCESS)]
    pub log_format: SettingValue,
}

/// A flag with its name, default and help, for the layers of settings.
#[derive(Debug, Clone)]
pub(in crate::server) struct Spec {
    /// The name, without `--`.
    pub name: String,
    /// The default; empty if there is none.
    pub default: String,
    /// The help.
    pub help: String,
    /// Whether a repeated flag adds to the value.
    pub is_list: bool,
}

/// Adds the flags to `command`. The values are texts that the layers combine; none is required.
pub(in crate::server) fn augment(command: Command) -> Command {
    let flags = Flags::augment_args(Command::new("flags"));
    let args = flags.get_arguments().cloned().map(|arg| {
        arg.required(false)
            .allow_hyphen_values(true)
            .value_parser(clap::value_parser!(String))
    });
    command.args(args)
}

/// Returns the flags in the order of their definition.
pub(in crate::server) fn specs() -> Vec<Spec> {
    let command = augment(Command::new("flags"));
    let spec = |arg: &clap::Arg| Spec {
        name: arg.get_long().unwrap_or_default().to_owned(),
        default: match arg.get_default_values() {
            [default, ..] => default.to_string_lossy().into_owned(),
            [] => String::new(),
        },
        help: arg.get_help().map(ToString::to_string).unwrap_or_default(),
        is_list: matches!(arg.get_action(), ArgAction::Append),
    };
    command.get_arguments().map(spec).collect()
}
