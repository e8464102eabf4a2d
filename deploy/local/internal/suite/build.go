package suite

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// build builds a service's binary from the module in the working folder.
func build(ctx context.Context, binDir, name string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(binDir, name), "./services/"+name)
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
