package scenarios

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"binnacle/e2e/harness"
)

// TestImages builds the images with buildah from the binaries under test and checks their contents:
// one binary, the CA bundle and no other file, and the user.
func TestImages(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("buildah"); err != nil {
		t.Skip("buildah is not installed")
	}
	dir := t.TempDir()
	storage := filepath.Join(dir, "storage.conf")
	if err := os.WriteFile(storage,
		[]byte(fmt.Sprintf("[storage]\ndriver = \"vfs\"\nrunroot = %q\ngraphroot = %q\n", filepath.Join(dir, "run"),
			filepath.Join(dir, "graph"))), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(path string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), path, args...)
		cmd.Dir = harness.Project(t)
		cmd.Env = append(os.Environ(), "CONTAINERS_STORAGE_CONF="+storage, "BUILDAH_ISOLATION=chroot")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run("buildah", "info"); err != nil {
		t.Skipf("buildah does not work: %v\n%s", err, out)
	}
	out := filepath.Join(dir, "out")
	if text, err := run(harness.Binary(t, harness.Images), "--builder=buildah",
		"--bin-dir="+programFolder(t, harness.Balancer), "--out="+out, "--tag=test", "--prefix=localhost/e2e"); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, service := range []string{"apiserver", "authn-webhook", "authz-webhook", "tokencleaner", "bootstrapsigner",
		"controllers", "console", "balancer"} {
		archive := filepath.Join(dir, service+".tar")
		if text, err := run("buildah", "push", "localhost/e2e/"+service+":test", "docker-archive:"+archive); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		checkImage(t, archive, service)
		if err := os.Remove(archive); err != nil {
			t.Error(err)
		}
		bills, err := filepath.Glob(filepath.Join(out, service+"-*.cdx.json"))
		if err != nil || len(bills) != 1 {
			t.Errorf("%s: got bills of materials %v, %v, want one", service, bills, err)
		}
	}
}

// checkImage checks the files, the configuration and the entrypoint of an image archive.
func checkImage(t *testing.T, archive, service string) {
	t.Helper()
	var manifest []struct {
		Config string
		Layers []string
	}
	readArchive(t, archive, func(name string, reader io.Reader) error {
		if name != "manifest.json" {
			return nil
		}
		return json.NewDecoder(reader).Decode(&manifest)
	})
	if len(manifest) != 1 {
		t.Fatalf("%s: got manifest %v, want 1", service, manifest)
	}
	var image struct {
		Config struct {
			User       string
			Entrypoint []string
			Cmd        []string
		} `json:"config"`
	}
	var files []string
	executable := false
	readArchive(t, archive, func(name string, reader io.Reader) error {
		switch {
		case name == manifest[0].Config:
			return json.NewDecoder(reader).Decode(&image)
		case slices.Contains(manifest[0].Layers, name):
			return forEachFile(reader, func(h *tar.Header) {
				if h.Typeflag == tar.TypeReg {
					files = append(files, "/"+strings.TrimPrefix(h.Name, "/"))
					executable = executable || h.Name == service && h.Mode&0o111 == 0o111
				}
			})
		}
		return nil
	})
	slices.Sort(files)
	want := []string{"/" + service, "/etc/ssl/certs/ca-certificates.crt"}
	slices.Sort(want)
	if !slices.Equal(files, want) || !executable {
		t.Errorf("%s: got files %v, executable %t, want %v, true", service, files, executable, want)
	}
	if image.Config.User != "65532:65532" || !slices.Equal(image.Config.Entrypoint, []string{"/" + service}) ||
		len(image.Config.Cmd) > 0 {
		t.Errorf("%s: got %+v, want user 65532:65532 and only the entrypoint /%s", service, image.Config, service)
	}
}

// readArchive calls each with the files of an image archive.
func readArchive(t *testing.T, path string, each func(name string, reader io.Reader) error) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	reader := tar.NewReader(file)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err == nil {
			err = each(header.Name, reader)
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
}

func forEachFile(layer io.Reader, each func(*tar.Header)) error {
	r := tar.NewReader(layer)
	for {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		each(header)
	}
}
