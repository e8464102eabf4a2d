package backends

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"gopkg.in/natefinch/lumberjack.v2"

	"binnacle/services/apiserver/internal/audit"
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
	lines := &lines{to: out, lost: func(int, error) {}, pending: inMemory()}
	size := o.MaxSize
	if size == 0 {
		size = defaultMaxSize
	}
	var file *rotated
	if o.Path != standard {
		had, torn, err := ensure(o.Path)
		if err != nil {
			return nil, fmt.Errorf("the audit log %s cannot be written: %w", o.Path, err)
		}
		file = &rotated{
			Logger: lumberjack.Logger{Filename: o.Path, MaxAge: o.MaxAge, MaxBackups: o.MaxBackup, MaxSize: size, Compress: o.Compress},
			most:   int64(size) * mega, size: had,
		}
		lines.to, lines.closer, lines.torn = file, file, torn
	}
	// A line does not go over files.
	b := newBackend(c, logName, lines, encode, int64(size)*mega, 1)
	lines.lost = func(n int, err error) { b.losses.lost(b.name, n, err) }
	if o.Path != standard {
		more, err := lines.besides(o.Path, Mode(c.Mode) == Blocking)
		if file.size += more; err != nil {
			c.Logger.Warn("lines of the audit log have no file to wait in, and are written one by one", "error", err)
		}
	}
	if Mode(c.Mode) == Blocking {
		b.early, b.durable = lines.keep, lines.pending.durable()
	}
	return b, nil
}

// besides has lines wait in a file beside the log, if that is wanted, after writing those that
// a process left there that was killed, by which the log grows.
func (l *lines) besides(log string, wanted bool) (more int64, err error) {
	if !wanted {
		if _, err := os.Lstat(log + pendingName); err != nil {
			return 0, nil
		}
	}
	if info, err := os.Stat(log); err != nil || !info.Mode().IsRegular() {
		return 0, err // a device, or a pipe
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
	l.mu.Lock()
	defer l.mu.Unlock()
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

// lines implements deliverer.
type lines struct {
	to     io.Writer
	closer io.Closer

	// lost is told of early lines that could not be written.
	lost func(lines int, err error)

	rounds rounds

	mu      sync.Mutex // before that of rounds; lost is called under it
	buf     []byte
	torn    bool // what was written last is not a whole line
	pending *pending
	kept    int         // lines of pending
	timer   *time.Timer // that writes them, if nothing else does
	armed   bool
	over    bool // nobody waits for the timer any more
}

// earlyTime is how long what nobody waits for may wait for the next write.
const earlyTime = 10 * time.Millisecond

// keep has a line written with the next one, or soon; false when it has to be written now.
func (l *lines) keep(line []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over || !l.pending.add(line) {
		return false
	}
	l.kept++
	switch {
	case l.armed:
	case l.timer == nil:
		l.timer = time.AfterFunc(earlyTime, func() { _, _ = l.deliver(context.Background(), nil) })
	default:
		l.timer.Reset(earlyTime)
	}
	l.armed = true
	return true
}

// begin puts what came early into the buffer. The caller holds mu.
func (l *lines) begin() (early int) {
	l.buf = l.buf[:0]
	if l.torn {
		l.buf = append(l.buf, '\n')
	}
	l.buf = append(l.buf, l.pending.lines()...)
	early, l.kept = l.kept, 0
	return early
}

// deliver writes lines, many at once, after those that came early.
func (l *lines) deliver(_ context.Context, events [][]byte) (lost int, err error) {
	if len(events) != 1 {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.all(events)
	}
	r, at, first := l.rounds.join(events[0])
	if first {
		runtime.Gosched() // others that end just now come along
		l.mu.Lock()
		waiting := l.rounds.begin(r)
		lost, err := l.all(r.lines)
		l.mu.Unlock()
		return l.rounds.end(r, waiting, lost, err)
	}
	<-r.done
	return r.of(at)
}

// all is deliver for who holds mu.
func (l *lines) all(events [][]byte) (lost int, err error) {
	if len(events) == 0 { // the timer
		l.armed = false
	}
	for i := 0; (i < len(events) || l.kept > 0) && err == nil; {
		from, early := i, l.begin()
		for ; i < len(events) && (i == from && early == 0 || len(l.buf)+len(events[i]) < maxPooled); i++ {
			l.buf = append(append(l.buf, events[i]...), '\n')
		}
		var whole int
		whole, err = l.write()
		l.pending.written()
		if err != nil {
			if n := early - min(whole, early); n > 0 {
				l.lost(n, err)
			}
			lost = len(events) - from - min(max(whole-early, 0), i-from)
		}
	}
	if cap(l.buf) > 2*maxPending {
		l.buf = nil
	}
	return lost, err
}

// write writes what has been gathered, and tells how many lines of it are whole.
func (l *lines) write() (whole int, err error) {
	n, err := l.to.Write(l.buf)
	wrote := l.buf[:n]
	if n > 0 {
		whole = bytes.Count(wrote, []byte("\n"))
		if l.torn {
			whole-- // the one that ends what was torn
		}
		l.torn = wrote[n-1] != '\n'
	}
	return whole, err
}

func (l *lines) close() error {
	l.mu.Lock()
	if l.over = true; l.timer != nil {
		l.timer.Stop()
	}
	l.mu.Unlock()
	_, err := l.deliver(context.Background(), nil)
	if l.pending.close != nil {
		l.mu.Lock()
		err = errors.Join(err, l.pending.close())
		l.mu.Unlock()
	}
	if l.closer != nil {
		err = errors.Join(err, l.closer.Close())
	}
	return err
}
