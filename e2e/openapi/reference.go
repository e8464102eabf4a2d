package openapi

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The module with the documents of Kubernetes 1.33, as in Kubernetes' repository: of a server with
// all alpha features and all versions, also those that are disabled by default.
const (
	module    = "sigs.k8s.io/kubectl-validate@v0.0.5-0.20260105161640-a97ccfaca20b"
	moduleSum = "h1:mWwviU3aRHOXhNhVCe4GSYRrr8wGaBrWTg83ZQ4VDtg="
	folder    = "pkg/openapiclient/builtins/1.33"
)

// kubernetesDocuments returns the documents by path, such as apis/apps/v1.
func kubernetesDocuments() (map[string][]byte, error) {
	cmd := exec.Command("go", "mod", "download", "-json", module)
	cmd.Dir = os.TempDir() // outside of any module
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	text, err := cmd.Output()
	var got struct{ Dir, Sum, Error string }
	if jsonErr := json.Unmarshal(text, &got); jsonErr != nil {
		return nil, fmt.Errorf("go mod download: %w, %w", err, jsonErr)
	}
	if got.Error != "" || got.Sum != moduleSum {
		return nil, fmt.Errorf("go mod download: %s, sum %s, want %s", got.Error, got.Sum, moduleSum)
	}
	root := filepath.Join(got.Dir, filepath.FromSlash(folder))
	out := map[string][]byte{}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err == nil {
			out[strings.TrimSuffix(filepath.ToSlash(name), ".json")], err = os.ReadFile(path)
		}
		return err
	})
	return out, err
}
