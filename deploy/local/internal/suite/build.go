package suite

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// program is a binary of the suite.
type program struct {
	name string
	// module is the folder of its module, below the working folder, and pkg its package there.
	module, pkg string
}

// build builds a binary.
func (p program) build(ctx context.Context, binDir string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(binDir, p.name), p.pkg)
	cmd.Dir = p.module
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

func checkBinary(binDir, name string) error {
	info, err := os.Stat(filepath.Join(binDir, name))
	if err != nil {
		return fmt.Errorf("no binary to run with --no-build: %w", err)
	}
	if info.IsDir() || info.Mode()&0o111 == 0 {
		return fmt.Errorf("%s is not executable", filepath.Join(binDir, name))
	}
	return nil
}
