package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"binnacle/libs/tracing"
)

// Connection parameters, as in kube-apiserver.
const (
	keepaliveTime     = 30 * time.Second
	keepaliveTimeout  = 10 * time.Second
	dialTimeout       = 20 * time.Second
	maxReconnectDelay = 3 * time.Second
)

// DialOptions holds the address of an etcd cluster and the client credentials.
type DialOptions struct {
	// Servers are URLs such as https://etcd-0:2379.
	Servers []string
	// CAFile verifies the servers. Empty means the system's authorities.
	CAFile string
	// CertFile and KeyFile are the client certificate. They are read again for each connection, so
	// they may be renewed at run time.
	CertFile, KeyFile string
	// Logger receives the client's warnings; nil discards them.
	Logger *slog.Logger
	// Metrics registers the grpc_client_* metrics of the calls; nil disables them.
	Metrics prometheus.Registerer
	// Dial connects to servers through a proxy; nil connects directly.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Traces creates spans of calls for traced requests; nil disables them.
	Traces trace.TracerProvider
}

// Dial creates a client without waiting for a connection. Errors in the options are returned at
// once; errors of the servers appear in Store.Ping. The caller closes the client.
func Dial(opts DialOptions) (*clientv3.Client, error) {
	secure, err := checkServers(opts.Servers)
	if err != nil {
		return nil, err
	}
	cfg := clientv3.Config{
		Endpoints:            opts.Servers,
		DialKeepAliveTime:    keepaliveTime,
		DialKeepAliveTimeout: keepaliveTimeout,
		// etcd's own limit on requests is the effective one.
		MaxCallSendMsgSize: maxMessage,
		MaxCallRecvMsgSize: maxMessage,
		// The caller of the request gets the error.
		Logger: ZapLogger(opts.Logger, "retrying of unary invoker failed"),
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay:  100 * time.Millisecond,
				Multiplier: 1.6,
				Jitter:     0.2,
				MaxDelay:   maxReconnectDelay,
			},
			MinConnectTimeout: dialTimeout,
		})},
	}
	if opts.Metrics != nil {
		calls := grpcprom.NewClientMetrics()
		if err := opts.Metrics.Register(calls); err != nil {
			return nil, fmt.Errorf("etcd client: metrics: %w", err)
		}
		cfg.DialOptions = append(cfg.DialOptions,
			grpc.WithChainUnaryInterceptor(calls.UnaryClientInterceptor()),
			grpc.WithChainStreamInterceptor(calls.StreamClientInterceptor()))
	}
	if opts.Dial != nil {
		cfg.DialOptions = append(cfg.DialOptions, grpc.WithContextDialer(opts.dialAddr))
	}
	if opts.Traces != nil {
		cfg.DialOptions = append(cfg.DialOptions, grpc.WithStatsHandler(otelgrpc.NewClientHandler(
			otelgrpc.WithTracerProvider(opts.Traces), otelgrpc.WithPropagators(tracing.Propagator()), otelgrpc.WithMeterProvider(noop.NewMeterProvider()),
			otelgrpc.WithMessageEvents(otelgrpc.ReceivedEvents, otelgrpc.SentEvents))))
	}
	if secure {
		if cfg.TLS, err = tlsConfig(opts); err != nil {
			return nil, err
		}
	} else if opts.CAFile != "" || opts.CertFile != "" || opts.KeyFile != "" {
		return nil, errors.New("etcd: certificates are given, but the servers are not https")
	}
	client, err := clientv3.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("etcd client: %w", err)
	}
	return client, nil
}

// dialAddr connects to an address in the client's form: host:port, or unix:path.
func (o *DialOptions) dialAddr(ctx context.Context, addr string) (net.Conn, error) {
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		return (&net.Dialer{}).DialContext(ctx, "unix", strings.TrimPrefix(path, "//"))
	}
	return o.Dial(ctx, "tcp", addr)
}

// checkServers returns whether the servers use TLS. It rejects a mixture, because the client
// decides by the first server.
func checkServers(servers []string) (secure bool, err error) {
	if len(servers) == 0 {
		return false, errors.New("etcd: no servers given")
	}
	for i, server := range servers {
		scheme, address, ok := strings.Cut(server, "://")
		if !ok || address == "" {
			return false, fmt.Errorf("etcd: server %q is not a URL", server)
		}
		var tls bool
		switch scheme {
		case "http", "unix":
		case "https", "unixs":
			tls = true
		default:
			return false, fmt.Errorf("etcd: server %q: scheme %q is not known", server, scheme)
		}
		if i > 0 && tls != secure {
			return false, errors.New("etcd: some servers are https and others are not")
		}
		secure = tls
	}
	return secure, nil
}

// tlsConfig returns the TLS configuration of the options. It loads the client certificate for each
// connection.
func tlsConfig(opts DialOptions) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if opts.CAFile != "" {
		pem, err := os.ReadFile(opts.CAFile)
		if err != nil {
			return nil, fmt.Errorf("etcd: authorities: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("etcd: authorities: %s holds no certificate", opts.CAFile)
		}
	}
	if (opts.CertFile == "") != (opts.KeyFile == "") {
		return nil, errors.New("etcd: certificate and key must be given together")
	}
	if opts.CertFile == "" {
		return cfg, nil
	}
	load := func() (*tls.Certificate, error) {
		cert, err := tls.LoadX509KeyPair(opts.CertFile, opts.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("etcd: client certificate: %w", err)
		}
		return &cert, nil
	}
	if _, err := load(); err != nil {
		return nil, err
	}
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	return cfg, nil
}

// ZapLogger returns a zap logger that writes warnings and errors to a slog logger;
// nil discards. The etcd client and the embedded server log through it. Messages
// that contain one of the known texts are dropped.
func ZapLogger(logger *slog.Logger, suppressed ...string) *zap.Logger {
	if logger == nil {
		return zap.NewNop()
	}
	return zap.New(zapCore{handler: logger.Handler(), suppressed: suppressed})
}

// zapCore is immutable, as zap requires.
type zapCore struct {
	handler    slog.Handler
	suppressed []string
}

func zapLevel(l zapcore.Level) slog.Level {
	if l == zapcore.WarnLevel {
		return slog.LevelWarn
	}
	return slog.LevelError
}

func (c zapCore) Enabled(l zapcore.Level) bool {
	return l >= zapcore.WarnLevel && c.handler.Enabled(context.Background(), zapLevel(l))
}

func (c zapCore) With(fields []zapcore.Field) zapcore.Core {
	return zapCore{handler: c.handler.WithAttrs(zapAttrs(fields)), suppressed: c.suppressed}
}

func (c zapCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if !c.Enabled(e.Level) || slices.ContainsFunc(c.suppressed, func(suppressed string) bool {
		return strings.Contains(e.Message, suppressed)
	}) {
		return ce
	}
	return ce.AddCore(e, c)
}

func (c zapCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	r := slog.NewRecord(e.Time, zapLevel(e.Level), e.Message, 0)
	if e.LoggerName != "" {
		r.AddAttrs(slog.String("logger", e.LoggerName))
	}
	r.AddAttrs(zapAttrs(fields)...)
	return c.handler.Handle(context.Background(), r)
}

func (zapCore) Sync() error { return nil }

// zapAttrs converts fields to attributes.
func zapAttrs(fields []zapcore.Field) []slog.Attr {
	enc := zapcore.NewMapObjectEncoder()
	out := make([]slog.Attr, 0, len(fields))
	for _, f := range fields {
		f.AddTo(enc)
	}
	// In the order of the fields. A field may add further keys, such as errorVerbose, which are
	// omitted.
	for _, f := range fields {
		if v, ok := enc.Fields[f.Key]; ok {
			out = append(out, slog.Any(f.Key, v))
		}
	}
	return out
}
