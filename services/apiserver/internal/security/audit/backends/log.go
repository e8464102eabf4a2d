package backends

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/natefinch/lumberjack.v2"

	"binnacle/services/apiserver/internal/security/audit"
)

const (
	formatJSON   = "json"
	formatLegacy = "legacy"
	logName      = "log"
	// stdoutPath is the path that means standard output.
	stdoutPath = "-"
	megabyte   = 1 << 20
	// defaultMaxSize is the default maximum size of a file in megabytes.
	defaultMaxSize = 100
)

// minLogBatch is the minimum of the maximum batch size in batch mode. Batches are not visible in a
// file, and a write costs as much as encoding its lines, so larger batches are cheaper.
const minLogBatch = 500

// minLogWait is the minimum of the maximum wait of a batch.
const minLogWait = 10 * time.Millisecond

// LogOptions are the options of the log.
type LogOptions struct {
	Options
	Path, Format               string
	MaxAge, MaxBackup, MaxSize int
	Compress                   bool
}

// Enabled reports whether the log is enabled.
func (o *LogOptions) Enabled() bool { return o.Path != "" }

// Validate returns the errors in the options, with the messages of Kubernetes.
func (o *LogOptions) Validate() []error {
	if !o.Enabled() {
		return nil
	}
	errs := o.Options.Validate(logName)
	for _, n := range []struct {
		flag  string
		value int
	}{{"maxage", o.MaxAge}, {"maxbackup", o.MaxBackup}, {"maxsize", o.MaxSize}} {
		if n.value < 0 {
			errs = append(errs, fmt.Errorf("--audit-log-%s %v can't be a negative number", n.flag, n.value))
		}
	}
	if formats := []string{formatLegacy, formatJSON}; !slices.Contains(formats, o.Format) {
		errs = append(errs, fmt.Errorf("invalid audit log format %s, allowed formats are %q", o.Format, strings.Join(formats, ",")))
	}
	return errs
}

// NewLog returns the backend that writes lines to a rotated file, a pipe, or out for the path "-".
func NewLog(logOptions *LogOptions, config Config, out io.Writer) (*Backend, error) {
	config.Options = logOptions.Options
	if b := &config.Options.Batch; b.BufferSize >= 4*minLogBatch { // a smaller queue could overflow in the meantime
		b.MaxSize, b.MaxWait = max(b.MaxSize, minLogBatch), max(b.MaxWait, minLogWait)
	}
	encode := func(dst []byte, e *audit.Event) []byte { return e.AppendLine(dst) }
	if logOptions.Format == formatLegacy {
		encode = appendLegacy
	}
	size := logOptions.MaxSize
	if size == 0 {
		size = defaultMaxSize
	}
	maxSize := int64(size) * megabyte // a line must fit into one file
	lines := newLineWriter()
	if err := lines.openOutput(logOptions, out, maxSize); err != nil {
		return nil, err
	}
	b := newBackend(config, logName, lines, encode, maxSize, 1)
	b.withDeadline = lines.withDeadline
	b.beginShutdown = lines.beginShutdown
	return b, nil
}

// openOutput opens the output.
func (l *lineWriter) openOutput(logOptions *LogOptions, out io.Writer, maxSize int64) error {
	if logOptions.Path == stdoutPath {
		l.output = &sharedOutput{output: out}
		l.hasReader = true
		return nil
	}
	size, torn, err := prepareFile(logOptions.Path)
	if err != nil {
		return fmt.Errorf("audit log %s is not writable: %w", logOptions.Path, err)
	}
	l.incomplete = torn
	if info, err := os.Stat(logOptions.Path); err == nil && !info.Mode().IsRegular() {
		l.output = &pipe{path: logOptions.Path}
		l.hasReader = true
		return nil
	}
	l.output = &rotatedFile{
		Logger: lumberjack.Logger{
			Filename:   logOptions.Path,
			MaxAge:     logOptions.MaxAge,
			MaxBackups: logOptions.MaxBackup,
			MaxSize:    int(maxSize / megabyte),
			Compress:   logOptions.Compress,
		},
		maxSize: maxSize,
		size:    size,
	}
	return nil
}

// prepareFile creates the file if needed and checks that it can be written. torn reports whether
// its last line is incomplete because a process ended during a write.
func prepareFile(path string) (size int64, torn bool, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return 0, false, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return 0, false, err
	}
	info, err := f.Stat()
	if err == nil && info.Mode().IsRegular() && info.Size() > 0 {
		last := make([]byte, 1)
		size = info.Size()
		_, err = f.ReadAt(last, size-1)
		torn = last[0] != '\n'
	}
	return size, torn, errors.Join(err, f.Close())
}

// Placeholders of the legacy format for missing values.
const (
	noValue         = "<none>"
	noSourceIP      = "<unknown>"
	noImpersonation = "<self>"
	unknownGroups   = "<lookup>"
	noResponse      = "<deferred>"
)

// appendLegacy appends an event in the legacy format.
func appendLegacy(dst []byte, event *audit.Event) []byte {
	user := noValue
	groups := noValue
	impersonated := noImpersonation
	asGroups := unknownGroups
	if u := event.User; u != nil && u.Name != "" {
		user = u.Name
		if len(u.Groups) > 0 {
			groups = joinQuoted(u.Groups)
		}
	}
	if u := event.Impersonated; u != nil {
		impersonated = u.Name
		if u.Groups != nil {
			asGroups = joinQuoted(u.Groups)
		}
	}
	namespace := noValue
	response := noResponse
	ip := noSourceIP
	if event.Object != nil && event.Object.Namespace != "" {
		namespace = event.Object.Namespace
	}
	if event.Status != nil {
		response = strconv.Itoa(int(event.Status.Code))
	}
	if len(event.SourceIPs) > 0 {
		ip = event.SourceIPs[0]
	}
	return fmt.Appendf(dst,
		"%s AUDIT: id=%q stage=%q ip=%q method=%q user=%q groups=%q as=%q asgroups=%q user-agent=%q namespace=%q uri=%q response=\"%s\"",
		event.Received.Format(time.RFC3339Nano), event.ID, event.Stage, ip, event.Verb, user, groups, impersonated, asGroups, event.UserAgent, namespace, event.URI, response)
}

// joinQuoted returns the quoted texts of a list, separated by commas.
func joinQuoted(list []string) string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = strconv.Quote(s)
	}
	return strings.Join(out, ",")
}
