package fanout

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
)

// Options configures how the replicas of a suite reach each other.
type Options struct {
	// Servers are addresses of NATS servers (nats://, tls://, ws://, wss://). None means the
	// embedded server, which no other process can reach.
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
	if o.usesEmbedded() && (o.CAFile != "" || o.CertFile != "" || o.KeyFile != "" || o.CredentialsFile != "") {
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

func (o *Options) usesEmbedded() bool { return len(o.Servers) == 0 }

// embeddedPayload is the message limit of the embedded server. It fits a request of the store (1.5
// MiB by default, and what an operator may raise it to).
const embeddedPayload = 8 << 20

// startServer starts a NATS server that is reachable inside the process only.
func startServer(log *slog.Logger) (*server.Server, error) {
	srv, err := server.NewServer(&server.Options{
		ServerName: "binnacle",
		DontListen: true,
		NoSigs:     true,
		MaxPayload: embeddedPayload,
	})
	if err != nil {
		return nil, fmt.Errorf("make embedded NATS server: %w", err)
	}
	srv.SetLoggerV2(serverLog{log.With("component", "nats-server")}, false, false, false)
	// Without a listener, Start returns when the server serves.
	srv.Start()
	return srv, nil
}

// serverLog forwards the log of the server. Its notices are for operators of a NATS server, so they
// are logged at debug level here.
type serverLog struct{ log *slog.Logger }

func (l serverLog) Noticef(format string, v ...any) { l.write(slog.LevelDebug, format, v) }
func (l serverLog) Debugf(format string, v ...any)  { l.write(slog.LevelDebug, format, v) }
func (l serverLog) Tracef(format string, v ...any)  { l.write(slog.LevelDebug, format, v) }
func (l serverLog) Warnf(format string, v ...any)   { l.write(slog.LevelWarn, format, v) }
func (l serverLog) Errorf(format string, v ...any)  { l.write(slog.LevelError, format, v) }

// Fatalf logs without ending the process, which the server must not do.
func (l serverLog) Fatalf(format string, v ...any) { l.write(slog.LevelError, format, v) }

func (l serverLog) write(level slog.Level, format string, v []any) {
	if ctx := context.Background(); l.log.Enabled(ctx, level) {
		l.log.Log(ctx, level, fmt.Sprintf(format, v...))
	}
}

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
