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

// checkSecrets checks that no private key of the suite, neither as base64 text nor as bytes, is in the
// layers or configurations of images, in the configurations of containers or in their logs.
func checkSecrets(t *testing.T, c *composition) {
	keys := readPrivateKeys(t, c.certificate())
	if len(keys) < 20 {
		t.Fatalf("got %d private keys to search for, want at least 20", len(keys))
	}
	finder := newFinder(keys)
	requireNoKey := func(where string, data []byte) {
		for _, name := range finder.keysIn(data) {
			t.Errorf("%s contains the private key %s, want none", where, name)
		}
	}

	// The finder must find a key in both forms.
	const knownKey = "apiserver/sa.key"
	asText, err := os.ReadFile(c.certificate("apiserver", "sa.key"))
	if err != nil {
		t.Fatal(err)
	}
	asBytes := slices.Concat([]byte("abc"), keys[knownKey].bytes)
	for form, data := range map[string][]byte{"text": asText, "bytes": asBytes} {
		if found := finder.keysIn(data); !slices.Contains(found, knownKey) {
			t.Fatalf("the finder finds the keys %q in %s as %s, want it found", found, knownKey, form)
		}
	}

	for _, name := range imageNames() {
		requireNoKey("the configuration of image "+name, []byte(mustDocker(t, "image", "inspect", imageOf(name))))
		forEachLayerFile(t, imageOf(name), func(file string, data []byte) {
			requireNoKey("file "+file+" of image "+name, data)
		})
	}
	for _, name := range instances() {
		id := c.mustContainer(name)
		requireNoKey("the configuration of container "+name, []byte(mustDocker(t, "inspect", id)))
		requireNoKey("the log of container "+name, []byte(mustDocker(t, "logs", id)))
	}
}

// searchedKey holds the parts of a private key that identify it.
type searchedKey struct {
	text  []byte // half a line of the key's PEM file
	bytes []byte // the key in DER
}

// readPrivateKeys returns the private keys in the files *.key below a folder, by relative path. Both
// forms leave out the beginning, which identifies the type and is common to many keys.
func readPrivateKeys(t *testing.T, dir string) map[string]searchedKey {
	t.Helper()
	keys := map[string]searchedKey{}
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
		// A line of a PEM file has 64 characters, so these are the first half of the second line.
		text := base64.StdEncoding.EncodeToString(block.Bytes)[64:96]
		keys[name] = searchedKey{text: []byte(text), bytes: block.Bytes[40:]}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// finder searches for all keys in one pass, because images are large. At each position it compares
// two bytes with an array, then, rarely, prefixSize bytes with a map, and then the whole pattern.
type finder struct {
	mayStart [1 << 16]bool        // whether a pattern starts with these two bytes
	patterns map[string][]pattern // by their first prefixSize bytes
}

// pattern is one form of a key.
type pattern struct {
	key   string // name of the key
	bytes []byte
}

// prefixSize is the length of the prefix by which patterns are looked up.
const prefixSize = 16

// newFinder returns a finder of keys, which are given by name.
func newFinder(keys map[string]searchedKey) *finder {
	f := &finder{patterns: map[string][]pattern{}}
	for name, key := range keys {
		for _, form := range [][]byte{key.text, key.bytes} {
			f.mayStart[twoBytes(form)] = true
			prefix := string(form[:prefixSize])
			f.patterns[prefix] = append(f.patterns[prefix], pattern{key: name, bytes: form})
		}
	}
	return f
}

// twoBytes returns the first two bytes of data as a number.
func twoBytes(data []byte) uint16 { return uint16(data[0])<<8 | uint16(data[1]) }

// keysIn returns the names of the keys that data contains.
func (f *finder) keysIn(data []byte) (names []string) {
	for i := 0; i+prefixSize <= len(data); i++ {
		rest := data[i:]
		if !f.mayStart[twoBytes(rest)] {
			continue
		}
		for _, p := range f.patterns[string(rest[:prefixSize])] {
			if bytes.HasPrefix(rest, p.bytes) {
				names = append(names, p.key)
			}
		}
	}
	return names
}

// forEachLayerFile calls visit with each file of all layers of an image, and with the other files
// that "docker save" writes, such as manifests.
func forEachLayerFile(t *testing.T, image string, visit func(name string, data []byte)) {
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
	readTar := func(r io.Reader, visitFile func(*tar.Header, io.Reader) error) error {
		for archive := tar.NewReader(r); ; {
			header, err := archive.Next()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err == nil && header.Typeflag == tar.TypeReg {
				err = visitFile(header, archive)
			}
			if err != nil {
				return err
			}
		}
	}
	err = readTar(stdout, func(saved *tar.Header, r io.Reader) error {
		data, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		// A layer is a tar file itself: its first block contains "ustar".
		if !bytes.Contains(data[:min(len(data), 512)], []byte("ustar")) {
			visit(saved.Name, data)
			return nil
		}
		layers++
		return readTar(bytes.NewReader(data), func(file *tar.Header, r io.Reader) error {
			content, err := io.ReadAll(r)
			visit(file.Name, content)
			return err
		})
	})
	if _, drainErr := io.Copy(io.Discard, stdout); err == nil {
		err = drainErr
	}
	if err = errors.Join(err, cmd.Wait()); err != nil || layers < 2 {
		t.Fatalf("docker save %s: read %d layers, error %v, want at least 2 layers and no error", image, layers, err)
	}
}
