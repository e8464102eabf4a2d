package containers

import (
	"archive/tar"
	"bytes"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// checkSecrets searches for every private key of the suite, as text and as bytes, in the layers and
// configurations of images, in the configurations of containers and in their logs.
func checkSecrets(t *testing.T, c *composition) {
	secrets := privateKeys(t, c.certificate())
	if len(secrets) < 20 {
		t.Fatalf("got %d keys to search for, want at least 20", len(secrets))
	}
	find := newFinder(secrets)
	requireNoKey := func(where string, data []byte) {
		for _, name := range find.namesIn(data) {
			t.Errorf("%s contains the key %s, want none", where, name)
		}
	}
	planted, err := os.ReadFile(c.certificate("apiserver", "sa.key"))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(find.namesIn(planted), "apiserver/sa.key") || !slices.Contains(find.namesIn(slices.Concat(planted[:3], secrets["apiserver/sa.key"][1])), "apiserver/sa.key") {
		t.Fatal("the finder misses a planted key")
	}
	for _, s := range imageNames() {
		requireNoKey("the configuration of image "+s, []byte(mustDocker(t, "image", "inspect", imageOf(s))))
		forEachLayerFile(t, imageOf(s), func(name string, data []byte) { requireNoKey("file "+name+" of image "+s, data) })
	}
	for _, s := range instances() {
		id := c.mustContainer(s)
		requireNoKey("the configuration of container "+s, []byte(mustDocker(t, "inspect", id)))
		requireNoKey("the log of "+s, []byte(mustDocker(t, "logs", id)))
	}
}

// privateKeys returns the private keys below a folder, each as a part of its base64 text and as
// bytes.
func privateKeys(t *testing.T, dir string) map[string][][]byte {
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
			return errors.New(path + " is not PEM")
		}
		name, err := filepath.Rel(dir, path)
		// The first bytes of a key identify its type and are common to many keys.
		text := base64.StdEncoding.EncodeToString(block.Bytes)[64:96]
		out[name] = [][]byte{[]byte(text), block.Bytes[40:]}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// finder searches for many texts in one pass, because images are large.
type finder struct {
	first [1 << 16]bool          // whether a text starts with these two bytes
	texts map[string][]namedText // by their first bytes
}

// namedText is a searched text and the name of its key.
type namedText struct {
	name string
	text []byte
}

// wordSize is the length of the prefix by which texts are looked up.
const wordSize = 16

// newFinder returns a finder of secrets, by name.
func newFinder(secrets map[string][][]byte) *finder {
	f := &finder{texts: map[string][]namedText{}}
	for name, forms := range secrets {
		for _, form := range forms {
			f.first[uint16(form[0])<<8|uint16(form[1])] = true
			word := string(form[:wordSize])
			f.texts[word] = append(f.texts[word], namedText{name, form})
		}
	}
	return f
}

// namesIn returns the names of the texts that data contains.
func (f *finder) namesIn(data []byte) (names []string) {
	for i := 0; i+wordSize <= len(data); i++ {
		if f.first[uint16(data[i])<<8|uint16(data[i+1])] {
			for _, n := range f.texts[string(data[i:i+wordSize])] {
				if bytes.HasPrefix(data[i:], n.text) {
					names = append(names, n.name)
				}
			}
		}
	}
	return names
}

// forEachLayerFile calls each with the files of all layers of an image.
func forEachLayerFile(t *testing.T, image string, each func(name string, data []byte)) {
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
		if !bytes.Contains(data[:min(len(data), 512)], []byte("ustar")) { // not a layer
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
		t.Fatalf("%s: %d layers, %v, want no error, layers at least 2", image, layers, err)
	}
}
