package fanout

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// Options configures how the replicas of a suite reach each other.
type Options struct {
	// Servers are addresses of NATS servers (nats://, tls://, ws://, wss://). None means that there
	// is no other replica.
	Servers []string
	// CAFile verifies the servers. Empty means the system's authorities.
	CAFile string
	// CertFile and KeyFile identify the client. Both or neither are set.
	CertFile, KeyFile string
	// CredentialsFile holds the token and key of a user.
	CredentialsFile string
	// ClusterID separates the subjects of suites on the same servers.
	ClusterID string
}

// NewOptions returns the default options.
func NewOptions() Options { return Options{ClusterID: "default"} }

var clusterIDPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,63}$`)

// Validate returns all errors of the options joined, or nil.
func (o *Options) Validate() error {
	var errs []error
	if !clusterIDPattern.MatchString(o.ClusterID) {
		errs = append(errs, fmt.Errorf("--cluster-id: %q must be 1 to 63 letters, digits, '-' or '_'", o.ClusterID))
	}
	for _, s := range o.Servers {
		if err := checkServer(s); err != nil {
			errs = append(errs, fmt.Errorf("--nats-servers: %w", err))
		}
	}
	if (o.CertFile == "") != (o.KeyFile == "") {
		errs = append(errs, errors.New("--nats-cert-file and --nats-key-file must be given together"))
	}
	if o.alone() && (o.CAFile != "" || o.CertFile != "" || o.KeyFile != "" || o.CredentialsFile != "") {
		errs = append(errs,
			errors.New("--nats-ca-file, --nats-cert-file, --nats-key-file and --nats-credentials-file need --nats-servers"))
	}
	return errors.Join(errs...)
}

// checkServer returns an error unless s is the address of a NATS server.
func checkServer(address string) error {
	u, err := url.Parse(address)
	if err != nil {
		return fmt.Errorf("parse address: %w", err)
	}
	switch u.Scheme {
	case "nats", "tls", "ws", "wss":
	default:
		return fmt.Errorf("%q must begin with nats://, tls://, ws:// or wss://", u.Redacted())
	}
	if u.Hostname() == "" {
		return fmt.Errorf("%q names no host", u.Redacted())
	}
	return nil
}

// alone reports whether there is no other replica.
func (o *Options) alone() bool { return len(o.Servers) == 0 }

const (
	// maxStreamName bounds the name of a stream. A longer name ends with streamHashBytes bytes of a
	// hash.
	maxStreamName   = 63
	streamHashBytes = 8
)

// StreamName returns the ID of a cluster's change stream for the keys of a prefix.
func StreamName(id, prefix string) string {
	name := id + "-" + strings.NewReplacer("/", "-", ".", "-").Replace(strings.Trim(prefix, "/"))
	if len(name) > maxStreamName {
		sum := sha256.Sum256([]byte(name))
		name = name[:maxStreamName-2*streamHashBytes-1] + "-" + hex.EncodeToString(sum[:streamHashBytes])
	}
	return name
}

// StreamElector is an elector for one stream. An etcd cluster may store the resources of several
// streams.
type StreamElector struct {
	Elector
	Stream string
}

// Campaign implements Elector.
func (e StreamElector) Campaign(ctx context.Context, name, id string) (<-chan struct{}, func(), error) {
	return e.Elector.Campaign(ctx, name+"-"+e.Stream, id)
}
