package fanout

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/nats-io/nats-server/v2/server"
)

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
