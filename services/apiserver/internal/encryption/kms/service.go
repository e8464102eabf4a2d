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

// UnavailableError tells that the plugin did not answer well. Its text is that of Err.
type UnavailableError struct{ Err error }

func (e *UnavailableError) Error() string { return e.Err.Error() }
func (e *UnavailableError) Unwrap() error { return e.Err }

// Unavailable tells whether an error is of a plugin that may answer later.
func Unavailable(err error) bool {
	var u *UnavailableError
	return errors.As(err, &u)
}

// KeyError tells that a plugin was to open a key, and that nothing came of it which opens
// the value. It may answer otherwise later, whatever it said. The text is that of Err.
type KeyError struct {
	// Key names what the plugin was to open.
	Key string
	Err error
}

func (e *KeyError) Error() string { return e.Err.Error() }
func (e *KeyError) Unwrap() error { return e.Err }

type impatient struct{}

// Impatient marks a context of somebody who must not wait for a plugin that is not well.
func Impatient(ctx context.Context) context.Context {
	return context.WithValue(ctx, impatient{}, true)
}

// patience is how long those wait for a plugin who must not, and do not know of it that it
// does not answer: longer than plugins take whose keys are far away.
const patience = time.Second

func isImpatient(ctx context.Context) bool { return ctx.Value(impatient{}) != nil }

// connection is one to a plugin.
type connection struct {
	*grpc.ClientConn
	timeout time.Duration
}

const (
	// maxMessage bounds what a plugin answers, in bytes.
	maxMessage = 1 << 20
	// A plugin that is back is found soon.
	firstDial, lastDial = 100 * time.Millisecond, 2 * time.Second
)

// Socket is the path of an endpoint of the form unix:///PATH; PATH of an abstract
// socket begins with @.
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

// connect makes a connection; nothing is dialed before the first call.
func connect(c *Config) (*connection, error) {
	path, err := Socket(c.Endpoint)
	if err != nil {
		return nil, err
	}
	log := c.Logger
	// gRPC reads what it is given as an address of the web, where some signs mean something.
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
		if err != nil {
			log.Debug("a KMS plugin cannot be reached", "provider", c.Name, "socket", path, "error", err)
		}
		return conn, err
	}
	conn, err := grpc.NewClient("passthrough:///kms",
		grpc.WithTransportCredentials(insecure.NewCredentials()), // it is a socket of this machine
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(dial),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: firstDial, Multiplier: 1.6, Jitter: 0.2, MaxDelay: lastDial},
			MinConnectTimeout: lastDial,
		}),
		grpc.WithUnaryInterceptor(c.Metrics.intercept(c.Name)),
	)
	if err != nil {
		return nil, fmt.Errorf("connect to KMS plugin %s: %w", c.Name, err)
	}
	return &connection{conn, c.Timeout}, nil
}

// within bounds a call; the end of one who waits for it does not end it.
func (c *connection) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), c.timeout)
}

// Config says how a plugin is asked. All but Pace and Wait is required.
type Config struct {
	Name, Endpoint string
	Timeout        time.Duration
	// CacheSize is how many keys of version 1 are kept open; negative keeps all
	// that fit into MaxKeys.
	CacheSize int
	// ServerID names this server in metrics.
	ServerID string
	Pace     Pace
	Logger   *slog.Logger
	Metrics  *Metrics
	// Wait waits for a call as those do for whom a value is sealed or opened; it may let
	// others work meanwhile. nil means that it just waits.
	Wait func(context.Context, func(context.Context) error) error
	// Recovered is called when the plugin is well again, or has been found well first.
	Recovered func()
}

// Pace is how often a plugin is asked; zero values mean those of Kubernetes.
type Pace struct {
	// Well and Ill are between two statuses, WellKept and IllKept how long a health
	// check goes by the last one.
	Well, Ill, WellKept, IllKept time.Duration
	// Writes is how long a seed seals values after the last good status.
	Writes time.Duration
	// Doubt is how long an answer counts that was of no use: that a key is not to be
	// had, for those who must not wait, or one that has not opened any value.
	Doubt time.Duration
}

// reached begins to follow whether the plugin answers.
func (c *Config) reached() reached {
	wait := c.Wait
	if wait == nil {
		wait = func(ctx context.Context, wait func(context.Context) error) error { return wait(ctx) }
	}
	return reached{recovered: c.Recovered, wait: wait}
}

func (p Pace) complete() Pace {
	or := func(d *time.Duration, standard time.Duration) {
		if *d == 0 {
			*d = standard
		}
	}
	or(&p.Well, time.Minute)
	or(&p.Ill, 10*time.Second)
	or(&p.WellKept, 20*time.Second)
	or(&p.IllKept, 3*time.Second)
	or(&p.Writes, 3*time.Minute)
	or(&p.Doubt, 5*time.Second)
	return p
}
