package backends

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gopkg.in/natefinch/lumberjack.v2"

	"binnacle/services/apiserver/internal/security/audit"
)

const (
	formatJSON   = "json"
	formatLegacy = "legacy"
	logName      = "log"
	// standard is the path of standard output.
	standard = "-"
	mega     = 1 << 20
	// defaultMaxSize of a file in megabytes, where none is said.
	defaultMaxSize = 100
)

// gathered is how many lines are written at once in mode batch, if so many come soon: in a
// file nobody sees what a batch was, and each write costs as much as making the lines.
const gathered = 500

// LogOptions of the log file.
type LogOptions struct {
	Options
	Path, Format               string
	MaxAge, MaxBackup, MaxSize int
	Compress                   bool
}

// Enabled tells whether there is to be a log.
func (o *LogOptions) Enabled() bool { return o.Path != "" }

// Validate tells what is wrong, in the words of Kubernetes.
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

// NewLog makes the backend that writes lines, to a file that is rotated or to out.
func NewLog(o *LogOptions, c Config, out io.Writer) (*Backend, error) {
	c.Options = o.Options
	if b := &c.Options.Batch; b.BufferSize >= 4*gathered { // else it might be full meanwhile
		b.MaxSize, b.MaxWait = max(b.MaxSize, gathered), max(b.MaxWait, earlyTime)
	}
	encode := func(dst []byte, e *audit.Event) []byte { return e.AppendLine(dst) }
	if o.Format == formatLegacy {
		encode = appendLegacy
	}
	size := o.MaxSize
	if size == 0 {
		size = defaultMaxSize
	}
	most := int64(size) * mega // a line does not go over files
	lines := newLines()
	file, err := lines.open(o, out, most)
	if err != nil {
		return nil, err
	}
	b := newBackend(c, logName, lines, encode, most, 1)
	lines.lost = func(n int, err error) { b.losses.lost(b.name, n, err) }
	if file != nil {
		more, err := lines.besides(o.Path, Mode(c.Mode) == Blocking)
		if file.size += more; err != nil {
			c.Logger.Warn("lines of the audit log have no file to wait in, and are written one by one", "error", err)
		}
	}
	if Mode(c.Mode) == Blocking {
		b.early, b.durable = lines.keep, lines.pending.durable()
	}
	b.bound, b.ends = lines.bound, lines.ends
	return b, nil
}

// open finds out where lines are written to. The file is nil where it is none that is rotated.
func (l *lines) open(o *LogOptions, out io.Writer, most int64) (file *rotated, err error) {
	if o.Path == standard {
		l.to = &shared{to: out}
		l.lock.place, l.long.place = make(chan struct{}, 1), make(chan struct{}, 1)
		return nil, nil
	}
	var had int64
	if had, l.torn, err = ensure(o.Path); err != nil {
		return nil, fmt.Errorf("the audit log %s cannot be written: %w", o.Path, err)
	}
	if info, err := os.Stat(o.Path); err == nil && !info.Mode().IsRegular() {
		l.to = &pipe{path: o.Path}
		l.lock.place, l.long.place = make(chan struct{}, 1), make(chan struct{}, 1)
		return nil, nil
	}
	file = &rotated{
		Logger: lumberjack.Logger{Filename: o.Path, MaxAge: o.MaxAge, MaxBackups: o.MaxBackup, MaxSize: int(most / mega), Compress: o.Compress},
		most:   most, size: had,
	}
	l.to = file
	return file, nil
}

// besides has lines wait in a file beside the log, if that is wanted, after writing those that
// a process left there that was killed, by which the log grows.
func (l *lines) besides(log string, wanted bool) (more int64, err error) {
	if !wanted {
		if _, err := os.Lstat(log + pendingName); err != nil {
			return 0, nil
		}
	}
	p, had, err := besideLog(log)
	if err != nil {
		return 0, err
	}
	if len(had) > 0 {
		if more, err = l.inherit(log, had); err != nil {
			return more, errors.Join(err, p.file.Close()) // who comes next may be able to
		}
	}
	if !wanted {
		return more, p.close()
	}
	if err := p.begin(); err != nil {
		return more, errors.Join(err, p.close())
	}
	l.pending = p
	return more, nil
}

// inherit writes the lines that another process left, of which the log may have some. They go
// to its end, however long it is: where it was rotated in between, nobody would find what it
// has.
func (l *lines) inherit(log string, had []byte) (more int64, err error) {
	f, err := os.OpenFile(log, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	// What is written together is no longer than that.
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
		l.torn, l.buf = false, l.buf[:0] // they go on where the log ends
	}
	l.buf = append(l.buf, rest...)
	n, err := f.Write(l.buf)
	if n > 0 {
		l.torn = l.buf[n-1] != '\n'
	}
	if err != nil {
		l.lost(bytes.Count(l.buf[max(n, len(l.buf)-len(rest)):], []byte("\n")), err)
	}
	return int64(n), nil
}

// ensure finds out at the start whether the file can be written, and whether its last line
// is torn because a process ended while it wrote.
func ensure(path string) (size int64, torn bool, err error) {
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
