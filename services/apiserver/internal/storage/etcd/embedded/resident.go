package embedded

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strconv"
)

// residentFile returns how many bytes of the database in a data directory are mapped into this
// process and resident. Most tools count them as memory of the process. It is 0 if the system does
// not report it.
func residentFile(dataDir string) (bytesResident int64) {
	db, err := filepath.Abs(filepath.Join(dataDir, "member", "snap", "db"))
	if err != nil {
		return 0
	}
	if real, err := filepath.EvalSymlinks(db); err == nil {
		db = real // the name that the system uses
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return 0
	}
	defer f.Close()
	ours := false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// "from-to rwxp offset device inode path", then "Name: value kB" of that.
		key, value, _ := bytes.Cut(lines.Bytes(), []byte(":"))
		switch {
		case bytes.IndexByte(key, '-') > 0:
			ours = bytes.HasSuffix(lines.Bytes(), []byte(" "+db))
		case ours && string(key) == "Rss":
			if n := bytes.Fields(value); len(n) > 0 {
				kib, _ := strconv.ParseInt(string(n[0]), 10, 64)
				bytesResident += kib << 10
			}
		}
	}
	return bytesResident
}
