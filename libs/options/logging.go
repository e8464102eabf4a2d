package options

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// logOptions holds the flags for the log of a process.
type logOptions struct {
	verbosity int
	format    string
}

func (l *logOptions) addFlags(s *Sections) {
	fs := s.Set("logs")
	fs.IntVarP(&l.verbosity, "v", "v", 0,
		"Number for the log level verbosity: 0 is info, 1 is debug, each higher number is more detailed.")
	fs.StringVar(&l.format, "logging-format", "text", `Log format: "text" or "json".`)
}

func (l *logOptions) validate() []error {
	var errs []error
	if l.verbosity < 0 {
		errs = append(errs, fmt.Errorf("--v must not be negative, got %d", l.verbosity))
	}
	if l.format != "text" && l.format != "json" {
		errs = append(errs, fmt.Errorf(`--logging-format must be "text" or "json", got %q`, l.format))
	}
	return errs
}

// Level returns the slog level for a klog-style verbosity: 0 is Info, 1 is Debug, and each higher
// number enables one more level below Debug.
func Level(verbosity int) slog.Level {
	if verbosity <= 0 {
		return slog.LevelInfo
	}
	return slog.LevelDebug - slog.Level(verbosity-1)
}

// logger returns a logger with the format and the verbosity of the flags.
func (l *logOptions) logger(writer io.Writer) *slog.Logger {
	level := &slog.LevelVar{}
	level.Set(Level(l.verbosity))
	o := &slog.HandlerOptions{Level: level, ReplaceAttr: replaceAttr}
	if l.format == "json" {
		return slog.New(leveledHandler{slog.NewJSONHandler(writer, o), level})
	}
	return slog.New(leveledHandler{slog.NewTextHandler(writer, o), level})
}

// maxAttribute is the maximum size in bytes of a text or an error in the log. Clients and other
// servers choose parts of them: an error may quote a response head of a megabyte.
const maxAttribute = 8 << 10

// replaceAttr is the ReplaceAttr function of the log. It writes durations with their unit instead
// of as a number of nanoseconds, and truncates long texts and errors.
func replaceAttr(_ []string, attr slog.Attr) slog.Attr {
	switch attr.Value.Kind() {
	case slog.KindDuration:
		attr.Value = slog.StringValue(attr.Value.Duration().String())
	case slog.KindString:
		attr.Value = slog.StringValue(truncate(attr.Value.String()))
	case slog.KindAny:
		if err, ok := attr.Value.Any().(error); ok {
			attr.Value = slog.StringValue(truncate(err.Error()))
		}
	default:
	}
	return attr
}

func truncate(s string) string {
	if len(s) <= maxAttribute {
		return s
	}
	return fmt.Sprintf("%s … (%d more bytes)", strings.ToValidUTF8(s[:maxAttribute], ""), len(s)-maxAttribute)
}

// leveledHandler is a handler whose level can change.
type leveledHandler struct {
	slog.Handler
	level *slog.LevelVar
}

func (h leveledHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return leveledHandler{h.Handler.WithAttrs(attrs), h.level}
}

func (h leveledHandler) WithGroup(name string) slog.Handler {
	return leveledHandler{h.Handler.WithGroup(name), h.level}
}

// SetVerbosity changes the verbosity of a service's logger and of all loggers that share its
// handler. It has no effect on other loggers.
func SetVerbosity(log *slog.Logger, verbosity int) {
	if h, ok := log.Handler().(leveledHandler); ok {
		h.level.Set(Level(verbosity))
	}
}

// libraryHandler logs the informational messages of libraries as debug messages. Services log the
// same events themselves where users need them.
type libraryHandler struct{ slog.Handler }

func (h libraryHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return h.Handler.Enabled(ctx, libraryLevel(l))
}

func (h libraryHandler) Handle(ctx context.Context, r slog.Record) error {
	r.Level = libraryLevel(r.Level)
	return h.Handler.Handle(ctx, r)
}

func (h libraryHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return libraryHandler{h.Handler.WithAttrs(attrs)}
}

func (h libraryHandler) WithGroup(name string) slog.Handler {
	return libraryHandler{h.Handler.WithGroup(name)}
}

func libraryLevel(l slog.Level) slog.Level {
	if l == slog.LevelInfo {
		return slog.LevelDebug
	}
	return l
}
