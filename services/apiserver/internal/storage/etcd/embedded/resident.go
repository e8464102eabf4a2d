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
	if resolved, err := filepath.EvalSymlinks(db); err == nil {
		db = resolved // the name that the system uses
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return 0
	}
	defer f.Close()
	inDatabase := false
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// Each mapping has a line "from-to rwxp offset device inode path", followed by lines
		// "Name: value kB" about it.
		key, value, _ := bytes.Cut(lines.Bytes(), []byte(":"))
		switch {
		case bytes.IndexByte(key, '-') > 0:
			inDatabase = bytes.HasSuffix(lines.Bytes(), []byte(" "+db))
		case inDatabase && string(key) == "Rss":
			fields := bytes.Fields(value)
			if len(fields) > 0 {
				kib, _ := strconv.ParseInt(string(fields[0]), 10, 64)
				bytesResident += kib << 10
			}
		}
	}
	return bytesResident
}
