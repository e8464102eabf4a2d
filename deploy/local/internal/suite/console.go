package suite

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

const (
	// supervisorName is the name of the supervisor's own lines.
	supervisorName = "binnacle"
	// nameWidth is the width of the column of names, in characters.
	nameWidth = 15
	// keptLines is the number of output lines of a service that are kept for the log of its exit.
	keptLines = 20
	// maxLineSize is the size in bytes from which a line is split.
	maxLineSize = 64 << 10
)

// console writes whole lines of several sources, prefixed with their names.
type console struct {
	mu    sync.Mutex // leaf lock, held while writing
	out   io.Writer
	color bool
	begin time.Time
}

// IsTerminal reports whether f is a terminal on which lines can be colored. It honors the
// environment variables NO_COLOR and TERM.
func IsTerminal(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// writeLine writes one line of a source; color is an ANSI color code.
func (c *console) writeLine(name string, color int, data []byte) {
	prefix := fmt.Sprintf("%-*s | ", nameWidth, name)
	if c.color {
		prefix = fmt.Sprintf("\x1b[%dm%s\x1b[0m", color, prefix)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// If the console cannot be written, the error cannot be reported.
	_, _ = fmt.Fprintf(c.out, "%s%s\n", prefix, data)
}

// printf writes a line of the supervisor, with the time since its start.
func (c *console) printf(format string, args ...any) {
	const bold = 1
	elapsed := fmt.Sprintf("%6.1fs  ", time.Since(c.begin).Seconds())
	c.writeLine(supervisorName, bold, append([]byte(elapsed), fmt.Sprintf(format, args...)...))
}

// serviceOutput receives the output of one service. It forwards whole lines to the console and
// keeps the last ones.
type serviceOutput struct {
	console *console
	name    string
	color   int

	mu        sync.Mutex // taken before console.mu
	partial   []byte     // the start of a line that is not terminated yet
	lastLines []string   // at most keptLines
}

// Write implements io.Writer for os/exec.
func (o *serviceOutput) Write(data []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	written := len(data)
	for {
		i := bytes.IndexByte(data, '\n')
		if i < 0 {
			break
		}
		o.emitLine(append(o.partial, data[:i]...))
		o.partial = o.partial[:0]
		data = data[i+1:]
	}
	o.partial = append(o.partial, data...)
	if len(o.partial) >= maxLineSize {
		o.emitLine(o.partial)
		o.partial = nil
	}
	return written, nil
}

// emitLine writes a line to the console and adds it to lastLines. The caller holds mu.
func (o *serviceOutput) emitLine(data []byte) {
	if len(o.lastLines) == keptLines {
		o.lastLines = append(o.lastLines[:0], o.lastLines[1:]...)
	}
	o.lastLines = append(o.lastLines, string(data))
	o.console.writeLine(o.name, o.color, data)
}

// flushPartial writes an unterminated line to the console, and returns the last lines of the
// service.
func (o *serviceOutput) flushPartial() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.partial) > 0 {
		o.emitLine(o.partial)
		o.partial = nil
	}
	return o.lastLines
}
