package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/options"
	"binnacle/services/apiserver/internal/storage/encryption"
	"binnacle/services/apiserver/internal/storage/etcd/embedded"
	"binnacle/services/apiserver/internal/storage/etcd/embedded/snapshot"
)

// defaultHealthTimeout bounds the response time of etcd in health checks.
const defaultHealthTimeout = 2 * time.Second

// Values of --storage-backend. Empty means etcd, too.
const (
	BackendEtcd   = "etcd3"
	BackendMemory = "memory"
)

// EtcdOptions configure the storage of objects.
type EtcdOptions struct {
	Backend   string   // BackendEtcd or BackendMemory
	Servers   []string // URLs; empty for the embedded etcd
	Overrides []string // values of --etcd-servers-overrides; see ParsedOverrides
	// CAFile, CertFile and KeyFile are for connections to Servers.
	CAFile, CertFile, KeyFile string
	Prefix                    string        // of all keys
	CompactionInterval        time.Duration // 0 disables compaction
	LeaseReuseSeconds         int
	// HealthTimeout and ReadyTimeout bound the response time of etcd in health checks. The flags
	// accept 0 for the default.
	HealthTimeout, ReadyTimeout time.Duration
	DataDir                     string // of the embedded etcd
	Embedded                    EmbeddedEtcdOptions
}

func (o *EtcdOptions) addFlags(sections *options.Sections) {
	flagSet := sections.Set("etcd")
	flagSet.StringVar(&o.Backend, "storage-backend", o.Backend,
		"Storage backend: etcd3 or memory. memory is for tests: it supports one replica and loses all objects when the process exits.")
	flagSet.StringSliceVar(&o.Servers, "etcd-servers", nil,
		"Comma-separated URLs of the etcd servers. If empty, the server embeds etcd, with its data in --data-dir.")
	flagSet.StringSliceVar(&o.Overrides, "etcd-servers-overrides", nil,
		"Per-resource etcd servers, comma separated. The format of an override is group/resource#servers, where servers are URLs, semicolon separated, such as /events#https://etcd-events:2379. The resource * is all resources of the group. The certificates are those of --etcd-servers.")
	flagSet.StringVar(&o.CAFile, "etcd-cafile", "", "CA bundle that verifies the etcd servers.")
	flagSet.StringVar(&o.CertFile, "etcd-certfile", "", "Client certificate for etcd.")
	flagSet.StringVar(&o.KeyFile, "etcd-keyfile", "", "Key of the client certificate for etcd.")
	flagSet.StringVar(&o.Prefix, "etcd-prefix", o.Prefix, "Prefix of all keys in etcd.")
	flagSet.DurationVar(&o.CompactionInterval, "etcd-compaction-interval", o.CompactionInterval,
		"Interval of compaction requests, and the minimum time that etcd keeps history. 0 disables compaction by API servers.")
	flagSet.IntVar(&o.LeaseReuseSeconds, "lease-reuse-duration-seconds", o.LeaseReuseSeconds,
		"Time in seconds for which an etcd lease is reused for further objects that expire.")
	flagSet.DurationVar(&o.HealthTimeout, "etcd-healthcheck-timeout", o.HealthTimeout, "Timeout of the etcd check of /healthz and /livez.")
	flagSet.DurationVar(&o.ReadyTimeout, "etcd-readycheck-timeout", o.ReadyTimeout, "Timeout of the etcd check of /readyz.")
	flagSet.StringVar(&o.DataDir, "data-dir", o.DataDir, "Data directory of the embedded etcd.")
	o.Embedded.addFlags(sections)
}

func (o *EtcdOptions) complete() {
	for _, timeout := range []*time.Duration{&o.HealthTimeout, &o.ReadyTimeout} {
		if *timeout == 0 {
			*timeout = defaultHealthTimeout
		}
	}
}

// validateBackend validates --storage-backend and rejects options that contradict a memory store,
// which no other replica shares.
func (o *Options) validateBackend() (errs []error) {
	switch o.Etcd.Backend {
	case BackendEtcd, "":
		return nil
	case BackendMemory:
	default:
		return []error{
			fmt.Errorf("--storage-backend invalid, allowed values: %s, %s. If not specified, it will default to '%s'",
				BackendEtcd, BackendMemory, BackendEtcd),
		}
	}
	for _, flag := range []struct {
		name  string
		isSet bool
	}{
		{name: "--etcd-servers", isSet: len(o.Etcd.Servers) > 0},
		{name: "--etcd-servers-overrides", isSet: len(o.Etcd.Overrides) > 0},
		{name: "--embedded-etcd-listen-client-url", isSet: o.Etcd.Embedded.ListenClientURL != ""},
		{name: "--nats-servers", isSet: len(o.Fanout.Servers) > 0},
	} {
		if flag.isSet {
			errs = append(errs, fmt.Errorf("%s cannot be used with --storage-backend=%s", flag.name, BackendMemory))
		}
	}
	return errs
}

// EncryptionOptions configure the encryption of stored objects.
type EncryptionOptions struct {
	ConfigFile string // path of an EncryptionConfiguration; empty disables encryption
	Reload     bool   // reload ConfigFile when it changes
}

func (o *EncryptionOptions) addFlags(sections *options.Sections) {
	flagSet := sections.Set("etcd")
	flagSet.StringVar(&o.ConfigFile, "encryption-provider-config", "",
		"File with the configuration of encryption providers for resources in etcd (EncryptionConfiguration, apiserver.config.k8s.io/v1). If empty, nothing is encrypted.")
	flagSet.BoolVar(&o.Reload, "encryption-provider-config-automatic-reload", false,
		"Reload the file of --encryption-provider-config when it changes. All KMS plugins then share the health check kms-providers.")
}

func (o *EncryptionOptions) validate() []error {
	if o.Reload && o.ConfigFile == "" {
		return []error{encryption.ErrWithoutFile}
	}
	return nil
}

// Override is a parsed value of --etcd-servers-overrides: "/events#http://a;http://b" has the
// resource events of the core group and two servers.
type Override struct {
	Resource schema.GroupResource // Resource may be "*"
	Servers  []string
}

var errOverride = errors.New("--etcd-servers-overrides invalid, must be of format: group/resource#servers, where servers are URLs, semicolon separated")

// ParsedOverrides parses Overrides. It omits invalid values and returns their errors. If several
// values are for the same resource, the last one applies.
func (o *EtcdOptions) ParsedOverrides() (out []Override, errs []error) {
	for _, value := range o.Overrides {
		resource, servers, ok := strings.Cut(value, "#")
		group, name, named := strings.Cut(resource, "/")
		if !ok || !named || strings.Contains(servers, "#") || strings.Contains(name, "/") {
			errs = append(errs, errOverride)
			continue
		}
		out = append(out, Override{
			Resource: schema.GroupResource{Group: group, Resource: name},
			Servers:  strings.Split(servers, ";"),
		})
	}
	return out, errs
}

func (o *EtcdOptions) validateOverrides() []error {
	overrides, errs := o.ParsedOverrides()
	for _, override := range overrides {
		if mainEtcdOnly(override.Resource) {
			errs = append(errs, fmt.Errorf("--etcd-servers-overrides: %s must be stored in --etcd-servers", override.Resource))
		}
		for _, s := range override.Servers {
			scheme, rest, _ := strings.Cut(s, "://")
			if rest == "" || !slices.Contains([]string{"http", "https", "unix", "unixs"}, scheme) {
				errs = append(errs, fmt.Errorf("--etcd-servers-overrides: %q is not a URL of an etcd server", s))
			}
		}
	}
	return errs
}

// mainEtcdOnly reports whether a resource must be stored in the main etcd. Authentication,
// authorization, the API set and admission depend on a single history, and must not depend on the
// availability of another cluster.
func mainEtcdOnly(r schema.GroupResource) bool {
	if slices.Contains(mainEtcdGroups, r.Group) || r.Resource == "*" && mainEtcdResources[r.Group] != nil {
		return true
	}
	return slices.Contains(mainEtcdResources[r.Group], r.Resource)
}

// mainEtcdGroups are the groups whose resources must all be stored in the main etcd.
var mainEtcdGroups = []string{
	"admissionregistration.k8s.io",
	"apiextensions.k8s.io",
	"apiregistration.k8s.io",
	"flowcontrol.apiserver.k8s.io",
	"rbac.authorization.k8s.io",
}

// mainEtcdResources are the resources of other groups that must be stored in the main etcd, by
// group.
var mainEtcdResources = map[string][]string{
	"": {
		"configmaps", "endpoints", "limitranges", "namespaces", "nodes", "persistentvolumeclaims",
		"persistentvolumes", "pods", "resourcequotas", "secrets", "serviceaccounts", "services",
	},
	"certificates.k8s.io": {"certificatesigningrequests"},
	"networking.k8s.io":   {"ingressclasses", "ipaddresses", "servicecidrs"},
	"node.k8s.io":         {"runtimeclasses"},
	"resource.k8s.io":     {"resourceclaims", "resourceslices"},
	"scheduling.k8s.io":   {"priorityclasses"},
	"storage.k8s.io":      {"csidrivers", "storageclasses", "volumeattachments"},
}

// OverridePrefixes returns the key prefixes of the resources that are stored in other etcd
// clusters. A key of the result is the sorted, semicolon-separated list of a cluster's servers.
// stored maps key prefixes to resources. An override of a resource takes precedence over an
// override of its group. ineffective is called for each override of a resource that is not in
// stored.
func (o *EtcdOptions) OverridePrefixes(
	stored map[string]schema.GroupResource,
	ineffective func(schema.GroupResource),
) map[string][]string {
	overrides, _ := o.ParsedOverrides() // Validate has reported the errors
	byResource := map[schema.GroupResource]string{}
	byGroup := map[string]string{}
	for _, override := range overrides {
		servers := strings.Join(slices.Compact(slices.Sorted(slices.Values(override.Servers))), ";")
		if override.Resource.Resource == "*" {
			byGroup[override.Resource.Group] = servers
		} else {
			byResource[override.Resource] = servers
		}
	}
	out := map[string][]string{}
	for prefix, resource := range stored {
		servers, ok := byResource[resource]
		if ok {
			delete(byResource, resource)
		} else {
			servers, ok = byGroup[resource.Group]
		}
		if ok {
			out[servers] = append(out[servers], prefix)
		}
	}
	for resource := range byResource {
		ineffective(resource)
	}
	for servers := range out {
		slices.Sort(out[servers])
	}
	return out
}

// MinQuota is the smallest valid quota of the embedded etcd, in bytes.
const MinQuota = 16 << 20

// EmbeddedEtcdOptions configure the embedded etcd.
type EmbeddedEtcdOptions struct {
	QuotaBytes int64 // size of the database above which etcd rejects writes
	// ListenClientURL is the URL for local tools; empty for none. CertFile, KeyFile and
	// TrustedCAFile are for an https URL.
	ListenClientURL                  string
	CertFile, KeyFile, TrustedCAFile string
}

func newEmbeddedEtcdOptions() EmbeddedEtcdOptions {
	return EmbeddedEtcdOptions{QuotaBytes: embedded.DefaultQuota}
}

func (o *EmbeddedEtcdOptions) addFlags(sections *options.Sections) {
	flagSet := sections.Set("etcd")
	flagSet.Int64Var(&o.QuotaBytes, "quota-backend-bytes", o.QuotaBytes,
		"Size in bytes of the database of the embedded etcd. Above it, writes other than deletions are rejected.")
	flagSet.StringVar(&o.ListenClientURL, "embedded-etcd-listen-client-url", "",
		"URL at which the embedded etcd serves tools on this machine: unix:///PATH, for the user of the server only, or https://127.0.0.1:PORT, with client certificates. If empty, it serves no clients.")
	flagSet.StringVar(&o.CertFile, "embedded-etcd-cert-file", "", "Serving certificate of --embedded-etcd-listen-client-url with https.")
	flagSet.StringVar(&o.KeyFile, "embedded-etcd-key-file", "", "Key of --embedded-etcd-cert-file.")
	flagSet.StringVar(&o.TrustedCAFile, "embedded-etcd-trusted-ca-file", "",
		"CA bundle that verifies client certificates at --embedded-etcd-listen-client-url with https.")
}

// validate returns all errors. external reports whether --etcd-servers is set, so that etcd is not
// embedded.
func (o *EmbeddedEtcdOptions) validate(external bool) (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if external {
		if o.ListenClientURL != "" {
			bad("--embedded-etcd-listen-client-url is of the etcd in this process, and --etcd-servers names another")
		}
		return errs
	}
	if o.QuotaBytes < MinQuota {
		bad("--quota-backend-bytes %d is less than %d", o.QuotaBytes, MinQuota)
	}
	certificates := o.CertFile != "" || o.KeyFile != "" || o.TrustedCAFile != ""
	if o.ListenClientURL == "" {
		if certificates {
			bad("--embedded-etcd-cert-file, --embedded-etcd-key-file and --embedded-etcd-trusted-ca-file need --embedded-etcd-listen-client-url")
		}
		return errs
	}
	clientURL, err := url.Parse(o.ListenClientURL)
	switch {
	case err != nil:
		bad("--embedded-etcd-listen-client-url: %w", err)
	case clientURL.Scheme == "unix" && clientURL.Host == "" && clientURL.Path != "":
		if certificates {
			bad("--embedded-etcd-listen-client-url %q: a socket asks for no certificates", o.ListenClientURL)
		}
	case clientURL.Scheme == "https" && clientURL.Path == "" && clientURL.Port() != "":
		if ip := net.ParseIP(clientURL.Hostname()); ip == nil || !ip.IsLoopback() {
			bad("--embedded-etcd-listen-client-url %q: %q is not a loopback address", o.ListenClientURL, clientURL.Hostname())
		}
		if o.CertFile == "" || o.KeyFile == "" || o.TrustedCAFile == "" {
			bad("--embedded-etcd-listen-client-url %q needs --embedded-etcd-cert-file, --embedded-etcd-key-file and --embedded-etcd-trusted-ca-file",
				o.ListenClientURL)
		}
	default:
		bad("--embedded-etcd-listen-client-url %q is neither unix:///PATH nor https://ADDRESS:PORT", o.ListenClientURL)
	}
	return errs
}

// SnapshotName is the name of the command that saves, inspects and restores snapshots of
// etcd.
const SnapshotName = "snapshot"

// SnapshotCommand returns the command SnapshotName. Without a subcommand, it saves a snapshot.
func SnapshotCommand() options.Command {
	save := &saveOptions{SaveCommand: snapshot.SaveCommand{Timeout: 10 * time.Minute, Keep: 7}}
	restore := &restoreOptions{RestoreCommand: snapshot.RestoreCommand{
		RestoreOptions: snapshot.RestoreOptions{RevisionBump: snapshot.DefaultRevisionBump},
	}}
	status := &statusOptions{StatusCommand: snapshot.StatusCommand{Output: os.Stdout}}
	return options.Command{
		Name:    SnapshotName,
		Short:   "Save, restore and inspect snapshots of etcd.",
		Options: save,
		Run:     save.Run,
		Commands: []options.Command{
			{Name: "save", Short: "Save the content of a running etcd to a file.", Options: save, Run: save.Run},
			{Name: "restore", Short: "Create the data folder of an etcd member from a snapshot.", Options: restore, Run: restore.Run},
			{Name: "status", Short: "Verify a snapshot and print its revision, keys and size.", Options: status, Run: status.Run},
		},
	}
}

// saveOptions are the flags of "snapshot save".
type saveOptions struct{ snapshot.SaveCommand }

// AddFlags implements options.Options.
func (o *saveOptions) AddFlags(sections *options.Sections) {
	flagSet := sections.Set("snapshot")
	flagSet.StringVar(&o.Endpoint, "endpoint", "",
		"URL of one etcd member, or the value of an API server's --embedded-etcd-listen-client-url.")
	flagSet.StringVar(&o.CAFile, "cacert", "", "CA bundle that verifies the server.")
	flagSet.StringVar(&o.CertFile, "cert", "", "Client certificate.")
	flagSet.StringVar(&o.KeyFile, "key", "", "Key of the client certificate.")
	flagSet.StringVar(&o.To, "to", "", "File to write. It must not exist.")
	flagSet.StringVar(&o.ToDir, "to-dir", "", "Folder to write to instead of --to. The file name contains the time.")
	flagSet.IntVar(&o.Keep, "keep", o.Keep, "With --to-dir, number of snapshots to keep in the folder. Older snapshots are removed.")
	flagSet.DurationVar(&o.Timeout, "timeout", o.Timeout, "Maximum time to copy the content. An unreachable server is reported within 5s.")
}

// Complete implements options.Options.
func (o *saveOptions) Complete() error { return nil }

// Validate implements options.Options.
func (o *saveOptions) Validate() (errs []error) {
	if o.Endpoint == "" || (o.To == "") == (o.ToDir == "") {
		errs = append(errs, errors.New("--endpoint and one of --to and --to-dir are required"))
	}
	if o.Keep < 1 {
		errs = append(errs, errors.New("--keep must be at least 1"))
	}
	if o.Timeout <= 0 {
		errs = append(errs, errors.New("--timeout must be positive"))
	}
	return errs
}

// restoreOptions are the flags of "snapshot restore".
type restoreOptions struct{ snapshot.RestoreCommand }

// AddFlags implements options.Options.
func (o *restoreOptions) AddFlags(sections *options.Sections) {
	flagSet := sections.Set("restore")
	flagSet.StringVar(&o.From, "from", "", "Snapshot file, or data folder of a stopped etcd.")
	flagSet.StringVar(&o.DataDir, "data-dir", "", "Data folder to create. It must not exist.")
	flagSet.Uint64Var(&o.RevisionBump, "bump-revision", o.RevisionBump,
		"Number to add to the revision. Older revisions are marked as compacted, so that clients list again. 0 keeps the revision.")
	clusterFlags := sections.Set("cluster")
	clusterFlags.StringVar(&o.Name, "name", "", "Name of the member. Without it, the folder is one for the etcd embedded in an API server.")
	clusterFlags.StringVar(&o.InitialCluster, "initial-cluster", "", "Members of the new cluster, as NAME=PEER-URL,...")
	clusterFlags.StringVar(&o.InitialClusterToken, "initial-cluster-token", "", "Token of the new cluster (default etcd-cluster).")
	clusterFlags.StringSliceVar(&o.PeerURLs, "initial-advertise-peer-urls", nil, "Peer URLs of this member.")
}

// Complete implements options.Options.
func (o *restoreOptions) Complete() error { return nil }

// Validate implements options.Options.
func (o *restoreOptions) Validate() (errs []error) {
	if o.From == "" || o.DataDir == "" {
		errs = append(errs, errors.New("--from and --data-dir are required"))
	}
	hasCluster := o.InitialCluster != "" || len(o.PeerURLs) > 0
	if hasCluster != (o.Name != "") {
		errs = append(errs, errors.New("--name, --initial-cluster and --initial-advertise-peer-urls are required together"))
	}
	return errs
}

// statusOptions are the flags of "snapshot status".
type statusOptions struct{ snapshot.StatusCommand }

// AddFlags implements options.Options.
func (o *statusOptions) AddFlags(sections *options.Sections) {
	sections.Set("status").StringVar(&o.From, "from", "", "Snapshot file, or data folder of a stopped etcd.")
}

// Complete implements options.Options.
func (o *statusOptions) Complete() error { return nil }

// Validate implements options.Options.
func (o *statusOptions) Validate() []error {
	if o.From == "" {
		return []error{errors.New("--from is required")}
	}
	return nil
}
