package garbage

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// program is the file that the process runs. A start needs more of its pages than later operation,
// and they stay mapped unless they are released.
type program struct {
	found  bool
	places []span
}

// unmap removes the pages of the file from the process. The system still has them, and maps touched
// pages again. Pages that differ from the file are kept.
func (p *program) unmap() {
	if !p.found {
		p.found = true
		exe, err := os.Readlink("/proc/self/exe")
		if err != nil {
			return // for example where /proc is not mounted
		}
		if maps, err := os.ReadFile("/proc/self/smaps"); err == nil {
			p.places = unchanged(maps, exe)
		}
	}
	for _, at := range p.places {
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, at.from, at.to-at.from, unix.MADV_DONTNEED) // on failure they stay
	}
}

// span is a range of addresses.
type span struct{ from, to uintptr }

// unchanged finds in the text of /proc/PID/smaps the mappings of a file that are not writable and
// have no private pages.
func unchanged(smaps []byte, file string) (found []span) {
	lines := bufio.NewScanner(bytes.NewReader(smaps))
	var at span
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) >= 6 && strings.Contains(fields[0], "-"):
			at = span{}
			from, to, _ := strings.Cut(fields[0], "-")
			a, err := strconv.ParseUint(from, 16, 64)
			if err != nil {
				continue
			}
			b, err := strconv.ParseUint(to, 16, 64)
			if err != nil {
				continue
			}
			if strings.Join(fields[5:], " ") == file && strings.HasPrefix(fields[1], "r-") && strings.HasSuffix(fields[1], "p") {
				at = span{uintptr(a), uintptr(b)}
			}
		case len(fields) == 3 && fields[0] == "Anonymous:" && fields[1] == "0" && at.to > at.from:
			found = append(found, at)
			at = span{}
		}
	}
	return found
}
