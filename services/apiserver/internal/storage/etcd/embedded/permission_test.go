package embedded_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/storage/etcd/embedded"
)

// TestOpenDataDirectoryCausesWarning checks that Start warns once about a data directory that other
// users can read, and about no other directory.
func TestOpenDataDirectoryCausesWarning(t *testing.T) {
	for name, test := range map[string]struct {
		mode os.FileMode // 0 means a new directory
		want bool
	}{
		"new":                   {},
		"private":               {mode: 0o700},
		"readable by the group": {mode: 0o750, want: true},
		"readable by all":       {mode: 0o755, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			if test.mode != 0 {
				if err := os.Mkdir(dir, test.mode); err != nil {
					t.Fatal(err)
				}
			}
			var log bytes.Buffer // read after the server has stopped
			server, err := embedded.Start(t.Context(), embedded.Options{
				DataDir: dir,
				Logger:  slog.New(slog.NewTextHandler(&log, nil)),
			})
			if err != nil {
				t.Fatal(err)
			}
			server.Stop()
			if got := strings.Count(log.String(), `level=WARN msg="check file permission"`); got > 1 || got == 1 != test.want {
				t.Errorf("got log %q, want one warning: %t", log.String(), test.want)
			}
		})
	}
}
