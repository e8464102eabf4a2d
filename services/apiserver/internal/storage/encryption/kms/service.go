package kms

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
)

// UnavailableError means that the plugin did not respond successfully. It has the text of Err.
type UnavailableError struct{ Err error }

func (e *UnavailableError) Error() string { return e.Err.Error() }
func (e *UnavailableError) Unwrap() error { return e.Err }

// Unavailable reports whether an error comes from a plugin that may respond later.
func Unavailable(err error) bool {
	var u *UnavailableError
	return errors.As(err, &u)
}

// KeyError means that a plugin was asked to decrypt a key, but returned no key that decrypts the
// value. A later attempt may succeed, whatever the response was. It has the text of Err.
type KeyError struct {
	// Key identifies the encrypted key.
	Key string
	Err error
}

func (e *KeyError) Error() string { return e.Err.Error() }
func (e *KeyError) Unwrap() error { return e.Err }

// failFastKey is the context key of FailFast.
type failFastKey struct{}

// FailFast marks the context of a caller that must not wait for an unhealthy plugin.
func FailFast(ctx context.Context) context.Context {
	return context.WithValue(ctx, failFastKey{}, true)
}

// impatientTimeout is how long impatient callers wait for a plugin that is not known to be
// unresponsive. It is longer than plugins with remote keys take.
const impatientTimeout = time.Second

// isImpatient reports whether FailFast has marked the context.
func isImpatient(ctx context.Context) bool { return ctx.Value(failFastKey{}) != nil }

// connection is a connection to a plugin.
type connection struct {
	*grpc.ClientConn
	timeout time.Duration
}

const (
	// maxMessage bounds the responses of a plugin, in bytes.
	maxMessage = 1 << 20
	// Short delays find a restarted plugin soon.
	firstRedial, lastRedial = 100 * time.Millisecond, 2 * time.Second
)

// Socket returns the path of an endpoint of the form unix:///PATH. The PATH of an abstract socket
// starts with @.
func Socket(endpoint string) (string, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return "", fmt.Errorf("invalid endpoint %q for remote KMS provider, error: %w", endpoint, err)
	}
	if u.Scheme != "unix" {
		return "", fmt.Errorf("unsupported scheme %q for remote KMS provider", u.Scheme)
	}
	if strings.HasPrefix(u.Path, "/@") {
		return u.Path[1:], nil
	}
	return u.Path, nil
}

// newConnection creates a connection. It does not dial before the first call.
func newConnection(config *Config) (*connection, error) {
	path, err := Socket(config.Endpoint)
	if err != nil {
		return nil, err
	}
	log := config.Logger
	// gRPC parses its target as a URL, in which some characters are special.
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
		if err != nil {
			log.Debug("KMS plugin is unreachable", "provider", config.Name, "socket", path, "error", err)
		}
		return conn, err
	}
	conn, err := grpc.NewClient("passthrough:///kms",
		grpc.WithTransportCredentials(insecure.NewCredentials()), // a local socket
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(dial),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: firstRedial, Multiplier: 1.6, Jitter: 0.2, MaxDelay: lastRedial},
			MinConnectTimeout: lastRedial,
		}),
		grpc.WithUnaryInterceptor(config.Metrics.interceptor(config.Name)),
	)
	if err != nil {
		return nil, fmt.Errorf("connect to KMS plugin %s: %w", config.Name, err)
	}
	return &connection{conn, config.Timeout}, nil
}

// withTimeout bounds a call. It continues when the waiting caller is canceled.
func (c *connection) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), c.timeout)
}

// Config configures a plugin. All fields except Intervals and Wait are required.
type Config struct {
	Name, Endpoint string
	Timeout        time.Duration
	// CacheSize bounds the decrypted keys of version 1 in the cache. 0 disables the cache. A negative
	// value means maxKeys.
	CacheSize int
	// ServerID identifies this server in metrics.
	ServerID  string
	Intervals Intervals
	Logger    *slog.Logger
	Metrics   *Metrics
	// Wait waits for a call on behalf of a caller of Seal or Open. It may yield to other work
	// meanwhile. nil only waits.
	Wait func(context.Context, func(context.Context) error) error
	// Recovered is called when the plugin becomes healthy, including the first time.
	Recovered func()
}

// Intervals holds the intervals of calls. A zero value means the interval of Kubernetes.
type Intervals struct {
	// HealthyInterval and UnhealthyInterval are the intervals of status calls, after a healthy and
	// after an unhealthy result.
	HealthyInterval, UnhealthyInterval time.Duration
	// HealthyTTL and UnhealthyTTL are how long a health check uses the last result.
	HealthyTTL, UnhealthyTTL time.Duration
	// SeedLifetime is how long a seed encrypts values after the last healthy status.
	SeedLifetime time.Duration
	// RefreshTimeout is how long an unsuccessful result is used. For impatient callers that is the
	// rejection of a key, for all callers a key that has not decrypted any value.
	RefreshTimeout time.Duration
}

// newResponsiveness returns the initial state of the plugin's reachability.
func (c *Config) newResponsiveness() responsiveness {
	wait := c.Wait
	if wait == nil {
		wait = func(ctx context.Context, wait func(context.Context) error) error { return wait(ctx) }
	}
	return responsiveness{recovered: c.Recovered, wait: wait}
}

// withDefaults returns the intervals with defaults for zero values.
func (p Intervals) withDefaults() Intervals {
	setDefault := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	setDefault(&p.HealthyInterval, time.Minute)
	setDefault(&p.UnhealthyInterval, 10*time.Second)
	setDefault(&p.HealthyTTL, 20*time.Second)
	setDefault(&p.UnhealthyTTL, 3*time.Second)
	setDefault(&p.SeedLifetime, 3*time.Minute)
	setDefault(&p.RefreshTimeout, 5*time.Second)
	return p
}
