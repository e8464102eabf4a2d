// Package zaplog connects etcd's libraries, which log through zap, to slog. It passes only warnings
// and errors: lower levels report normal operation. The etcd client and the embedded server use it.
package zaplog

import (
	"context"
	"log/slog"
	"slices"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// New returns a zap logger that writes to a slog logger; nil discards. Messages that contain one of
// the known texts are dropped.
func New(to *slog.Logger, known ...string) *zap.Logger {
	if to == nil {
		return zap.NewNop()
	}
	return zap.New(core{to: to.Handler(), known: known})
}

// core is immutable, as zap requires.
type core struct {
	to    slog.Handler
	known []string
}

func level(l zapcore.Level) slog.Level {
	if l == zapcore.WarnLevel {
		return slog.LevelWarn
	}
	return slog.LevelError
}

func (c core) Enabled(l zapcore.Level) bool {
	return l >= zapcore.WarnLevel && c.to.Enabled(context.Background(), level(l))
}

func (c core) With(fields []zapcore.Field) zapcore.Core {
	return core{to: c.to.WithAttrs(attrs(fields)), known: c.known}
}

func (c core) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if !c.Enabled(e.Level) || slices.ContainsFunc(c.known, func(known string) bool {
		return strings.Contains(e.Message, known)
	}) {
		return ce
	}
	return ce.AddCore(e, c)
}

func (c core) Write(e zapcore.Entry, fields []zapcore.Field) error {
	r := slog.NewRecord(e.Time, level(e.Level), e.Message, 0)
	if e.LoggerName != "" {
		r.AddAttrs(slog.String("logger", e.LoggerName))
	}
	r.AddAttrs(attrs(fields)...)
	return c.to.Handle(context.Background(), r)
}

func (core) Sync() error { return nil }

func attrs(fields []zapcore.Field) []slog.Attr {
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
