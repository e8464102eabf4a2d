package containers

import (
	"archive/tar"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"binnacle/e2e/harness"
)

// maxImage is what an image may weigh, unpacked (the authn-webhook's is the largest, with
// client-go, CEL and OpenTelemetry in it), and maxServer that of the API server, which has
// etcd and NATS in it.
const (
	maxImage  = 64 << 20
	maxServer = 100 << 20
)

func imageOf(service string) string { return imagesPrefix + "/" + service + ":" + tag() }

// checkImages looks at sizes, users and files.
func checkImages(t *testing.T) {
	for _, s := range services() {
		var found []struct {
			Size   int64
			Config struct {
				User       string
				Env        []string
				Entrypoint []string
			}
		}
		if err := json.Unmarshal([]byte(mustDocker(t, "image", "inspect", imageOf(s))), &found); err != nil || len(found) != 1 {
			t.Fatalf("%s: %d images, %v", s, len(found), err)
		}
		image := found[0]
		t.Logf("%s: %.1f MB", s, float64(image.Size)/(1<<20))
		if limit := map[bool]int64{false: maxImage, true: maxServer}[s == "apiserver"]; image.Size > limit {
			t.Errorf("%s weighs %d bytes", s, image.Size)
		}
		if image.Config.User != "65532:65532" || len(image.Config.Entrypoint) != 1 {
			t.Errorf("%s: %+v", s, image.Config)
		}
		checkEnvironment(t, s, image.Config.Env)
	}
}

// checkEnvironment: nothing is configured by variables, so that nothing secret can
// be.
func checkEnvironment(t *testing.T, who string, env []string) {
	t.Helper()
	for _, v := range env {
		if !strings.HasPrefix(v, "PATH=") {
			t.Errorf("%s has the variable %s", who, v)
		}
	}
}

// checkContainers looks at what each may do.
func checkContainers(t *testing.T, c *composition) {
	for _, s := range instances() {
		var found []struct {
			Config struct {
				User string
				Env  []string
			}
			HostConfig struct {
				ReadonlyRootfs, Privileged bool
				CapDrop, CapAdd            []string
				SecurityOpt                []string
			}
			Mounts []struct{ Source, Destination string }
		}
		if err := json.Unmarshal([]byte(mustDocker(t, "inspect", c.mustContainer(s))), &found); err != nil || len(found) != 1 {
			t.Fatalf("%s: %v", s, err)
		}
		f := found[0]
		uid, _, _ := strings.Cut(f.Config.User, ":")
		if uid == "" || uid == "0" || uid == "root" {
			t.Errorf("%s runs as %q", s, f.Config.User)
		}
		h := f.HostConfig
		if !h.ReadonlyRootfs || h.Privileged || !slices.Equal(h.CapDrop, []string{"ALL"}) || len(h.CapAdd) > 0 || !slices.Contains(h.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("%s may do more than it needs: %+v", s, h)
		}
		checkEnvironment(t, s, f.Config.Env)
		program := strings.TrimRight(s, "-0123456789")
		for _, m := range f.Mounts {
			if m.Destination == "/certs" && m.Source != c.certificate(program) || strings.HasPrefix(m.Source, c.certificate("ca")) {
				t.Errorf("%s mounts %s", s, m.Source)
			}
		}
	}
}

// checkSecrets looks for every private key of the suite, as text and as bytes, in
// the layers and configurations of images, in what the engine tells of containers,
// and in their logs.
func checkSecrets(t *testing.T, c *composition) {
	secrets := keys(t, c.certificate())
	if len(secrets) < 20 {
		t.Fatalf("only %d keys to look for", len(secrets))
	}
	look := func(where string, data []byte) {
		for name, forms := range secrets {
			for _, form := range forms {
				if bytes.Contains(data, form) {
					t.Errorf("%s has the key %s", where, name)
				}
			}
		}
	}
	planted, err := os.ReadFile(c.certificate("apiserver", "sa.key"))
	if err != nil {
		t.Fatal(err)
	}
	if found := secrets["apiserver/sa.key"]; len(found) == 0 || !bytes.Contains(planted, found[0]) {
		t.Fatal("a key that is there is not found")
	}
	for _, s := range services() {
		look("the image of "+s+", as told", []byte(mustDocker(t, "image", "inspect", imageOf(s))))
		eachLayerFile(t, imageOf(s), func(name string, data []byte) { look("the image of "+s+", "+name, data) })
	}
	for _, s := range instances() {
		id := c.mustContainer(s)
		look(s+", as told", []byte(mustDocker(t, "inspect", id)))
		look("the log of "+s, []byte(mustDocker(t, "logs", id)))
	}
}

// keys are the private keys below a folder, each as the first line of its text and
// as its bytes.
func keys(t *testing.T, dir string) map[string][][]byte {
	t.Helper()
	out := map[string][][]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".key" {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		block, _ := pem.Decode(data)
		if block == nil {
			return errors.New(path + " is no PEM")
		}
		name, err := filepath.Rel(dir, path)
		// The first bytes of a key say what it is, and are those of many.
		text := base64.StdEncoding.EncodeToString(block.Bytes)[64:96]
		out[name] = [][]byte{[]byte(text), block.Bytes[40:]}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// eachLayerFile reads the files of all layers of an image.
func eachLayerFile(t *testing.T, image string, each func(name string, data []byte)) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "docker", "save", image)
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	layers := 0
	read := func(r io.Reader, file func(*tar.Header, io.Reader) error) error {
		for files := tar.NewReader(r); ; {
			h, err := files.Next()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err == nil && h.Typeflag == tar.TypeReg {
				err = file(h, files)
			}
			if err != nil {
				return err
			}
		}
	}
	err = read(stdout, func(h *tar.Header, r io.Reader) error {
		data, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if !bytes.Contains(data[:min(len(data), 512)], []byte("ustar")) { // no layer
			each(h.Name, data)
			return nil
		}
		layers++
		return read(bytes.NewReader(data), func(f *tar.Header, r io.Reader) error {
			content, err := io.ReadAll(r)
			each(f.Name, content)
			return err
		})
	})
	if _, drainErr := io.Copy(io.Discard, stdout); err == nil {
		err = drainErr
	}
	if err = errors.Join(err, cmd.Wait()); err != nil || layers < 2 {
		t.Fatalf("%s: %d layers, %v", image, layers, err)
	}
}

// checkNetworks: who has no business with etcd and NATS does not get there.
func checkNetworks(t *testing.T, c *composition) {
	balancer := c.mustContainer("balancer")
	for _, network := range []string{"etcd", "nats"} {
		address, err := c.address(t.Context(), network+"-0", network)
		if err != nil {
			t.Fatal(err)
		}
		port := map[string]string{"etcd": "2379", "nats": "4222"}[network]
		for _, target := range []string{address + ":" + port, network + "-0:" + port} {
			// Whoever is reached has a certificate that is not believed here, or says what
			// is no TLS.
			out, err := docker("exec", balancer, "/balancer", "check", "--ca-file=/certs/serving-ca.crt", target)
			if err == nil || !strings.Contains(out, "no such host") && !strings.Contains(out, "deadline exceeded") && !strings.Contains(out, "i/o timeout") {
				t.Errorf("from the network suite, %s answers: %s", target, out)
			}
		}
	}
	// Where it may go the same question is answered.
	harness.Eventually(t, patience, "an answer", func() error {
		_, err := docker("exec", balancer, "/balancer", "check", "--ca-file=/certs/serving-ca.crt", "apiserver-1:6443")
		return err
	})
}
