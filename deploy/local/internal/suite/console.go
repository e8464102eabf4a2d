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

// IsTerminal reports whether lines can be colored.
func IsTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
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
	partial   []byte
	lastLines []string // at most keptLines
}

// Write implements io.Writer for os/exec.
func (l *serviceOutput) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(p)
	for {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			break
		}
		l.emitLine(append(l.partial, p[:i]...))
		l.partial = l.partial[:0]
		p = p[i+1:]
	}
	l.partial = append(l.partial, p...)
	if len(l.partial) >= maxLineSize {
		l.emitLine(l.partial)
		l.partial = nil
	}
	return n, nil
}

func (l *serviceOutput) emitLine(data []byte) {
	if len(l.lastLines) == keptLines {
		l.lastLines = append(l.lastLines[:0], l.lastLines[1:]...)
	}
	l.lastLines = append(l.lastLines, string(data))
	l.console.writeLine(l.name, l.color, data)
}

// flushPartial forwards an unterminated line, and returns the last lines.
func (l *serviceOutput) flushPartial() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.partial) > 0 {
		l.emitLine(l.partial)
		l.partial = nil
	}
	return l.lastLines
}
