package backends

import (
	"bytes"
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

// minLogBatch is the minimum of the maximum batch size in batch mode. Batches are not visible in a file, and
// a write costs as much as encoding its lines, so larger batches are cheaper.
const minLogBatch = 500

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
func NewLog(o *LogOptions, c Config, out io.Writer) (*Backend, error) {
	c.Options = o.Options
	if b := &c.Options.Batch; b.BufferSize >= 4*minLogBatch { // a smaller queue could overflow in the meantime
		b.MaxSize, b.MaxWait = max(b.MaxSize, minLogBatch), max(b.MaxWait, maxPostpone)
	}
	encode := func(dst []byte, e *audit.Event) []byte { return e.AppendLine(dst) }
	if o.Format == formatLegacy {
		encode = appendLegacy
	}
	size := o.MaxSize
	if size == 0 {
		size = defaultMaxSize
	}
	most := int64(size) * megabyte // a line must fit into one file
	lines := newLineWriter()
	file, err := lines.open(o, out, most)
	if err != nil {
		return nil, err
	}
	b := newBackend(c, logName, lines, encode, most, 1)
	lines.reportLost = func(n int, err error) { b.losses.lost(b.name, n, err) }
	if file != nil {
		more, err := lines.openWriteAhead(o.Path, Mode(c.Mode) == Blocking)
		if file.size += more; err != nil {
			c.Logger.Warn("audit log has no write-ahead file; each event is written separately", "error", err)
		}
	}
	if Mode(c.Mode) == Blocking {
		b.postpone, b.postponeDurable = lines.postpone, lines.writeAhead.durable()
	}
	b.withDeadline, b.beginShutdown = lines.withDeadline, lines.beginShutdown
	return b, nil
}

// open opens the output. file is nil if the output is not a rotated file.
func (l *lineWriter) open(o *LogOptions, out io.Writer, most int64) (file *rotatedFile, err error) {
	if o.Path == stdoutPath {
		l.out = &sharedOutput{out: out}
		l.lock.sem, l.longLock.sem = make(chan struct{}, 1), make(chan struct{}, 1)
		return nil, nil
	}
	var had int64
	if had, l.torn, err = prepareFile(o.Path); err != nil {
		return nil, fmt.Errorf("audit log %s is not writable: %w", o.Path, err)
	}
	if info, err := os.Stat(o.Path); err == nil && !info.Mode().IsRegular() {
		l.out = &pipe{path: o.Path}
		l.lock.sem, l.longLock.sem = make(chan struct{}, 1), make(chan struct{}, 1)
		return nil, nil
	}
	file = &rotatedFile{
		Logger:  lumberjack.Logger{Filename: o.Path, MaxAge: o.MaxAge, MaxBackups: o.MaxBackup, MaxSize: int(most / megabyte), Compress: o.Compress},
		maxSize: most, size: had,
	}
	l.out = file
	return file, nil
}

// openWriteAhead writes the lines that a killed process left in the write-ahead file to the log, and opens
// that file for new lines if wanted. more is the number of bytes written to the log.
func (l *lineWriter) openWriteAhead(log string, wanted bool) (more int64, err error) {
	if !wanted {
		if _, err := os.Lstat(log + writeAheadSuffix); err != nil {
			return 0, nil
		}
	}
	p, had, err := openWriteAheadFile(log)
	if err != nil {
		return 0, err
	}
	if len(had) > 0 {
		if more, err = l.recover(log, had); err != nil {
			return more, errors.Join(err, p.file.Close()) // keep the file for the next process
		}
	}
	if !wanted {
		return more, p.close()
	}
	if err := p.mapFile(); err != nil {
		return more, errors.Join(err, p.close())
	}
	l.writeAhead = p
	return more, nil
}

// recover appends the lines that another process left, except those that the log already has. It does not
// rotate the log before, because the lines of an incomplete write are found only in the current file.
func (l *lineWriter) recover(log string, had []byte) (more int64, err error) {
	f, err := os.OpenFile(log, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	// One write is not longer than that.
	end := make([]byte, min(info.Size(), int64(len(had)+maxPooled+1)))
	if _, err := f.ReadAt(end, info.Size()-int64(len(end))); err != nil {
		return 0, err
	}
	rest := unwritten(had, end, info.Size() == int64(len(end)))
	switch {
	case len(rest) == 0:
		return 0, nil
	case l.torn && len(rest) == len(had):
		l.buf = append(l.buf[:0], '\n')
	default:
		l.torn, l.buf = false, l.buf[:0] // the rest continues the last line of the log
	}
	l.buf = append(l.buf, rest...)
	n, err := f.Write(l.buf)
	if n > 0 {
		l.torn = l.buf[n-1] != '\n'
	}
	if err != nil {
		l.reportLost(bytes.Count(l.buf[max(n, len(l.buf)-len(rest)):], []byte("\n")), err)
	}
	return int64(n), nil
}

// prepareFile creates the file if needed and checks that it can be written. torn reports whether its last
// line is incomplete because a process ended during a write.
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
func appendLegacy(dst []byte, e *audit.Event) []byte {
	user, groups, as, asGroups := noValue, noValue, noImpersonation, unknownGroups
	if u := e.User; u != nil && u.Name != "" {
		user = u.Name
		if len(u.Groups) > 0 {
			groups = quoted(u.Groups)
		}
	}
	if u := e.Impersonated; u != nil {
		as = u.Name
		if u.Groups != nil {
			asGroups = quoted(u.Groups)
		}
	}
	namespace, response, ip := noValue, noResponse, noSourceIP
	if e.Object != nil && e.Object.Namespace != "" {
		namespace = e.Object.Namespace
	}
	if e.Status != nil {
		response = strconv.Itoa(int(e.Status.Code))
	}
	if len(e.SourceIPs) > 0 {
		ip = e.SourceIPs[0]
	}
	return fmt.Appendf(dst, "%s AUDIT: id=%q stage=%q ip=%q method=%q user=%q groups=%q as=%q asgroups=%q user-agent=%q namespace=%q uri=%q response=\"%s\"",
		e.Received.Format(time.RFC3339Nano), e.ID, e.Stage, ip, e.Verb, user, groups, as, asGroups, e.UserAgent, namespace, e.URI, response)
}

func quoted(list []string) string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = strconv.Quote(s)
	}
	return strings.Join(out, ",")
}
