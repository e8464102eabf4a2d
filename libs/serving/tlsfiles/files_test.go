package tlsfiles_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io/fs"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"binnacle/libs/serving/tlsfiles"
)

// TestInvalidFilesAreRejected checks that errors name the invalid file.
func TestInvalidFilesAreRejected(t *testing.T) {
	dir := t.TempDir()
	cert, key := loadOrCreatePair(t, tlsfiles.SelfSigned{Dir: dir, Name: "x"})
	_, otherKey := loadOrCreatePair(t, tlsfiles.SelfSigned{Dir: dir, Name: "y"})
	none, huge := filepath.Join(dir, "none"), filepath.Join(dir, "huge")
	write(t, huge, append(read(t, cert), bytes.Repeat([]byte("\n"), 4<<20)...))
	for _, test := range []struct{ cert, key, want string }{
		{cert: cert, key: key, want: ""},
		{cert: none, key: key, want: none},
		{cert: cert, key: none, want: none},
		{cert: cert, key: otherKey, want: "does not match"},
		{cert: huge, key: key, want: huge + " is larger than"},
	} {
		pair, err := tlsfiles.LoadPair(test.cert, test.key)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("LoadPair(%s, %s) = %v, want %q", test.cert, test.key, err, test.want)
		}
		if err == nil && (len(pair.Files()) != 2 || pair.FirstExpiring() != pair.Certificate().Leaf) {
			t.Errorf("got files %v, want certificate and key", pair.Files())
		}
	}
	for file, want := range map[string]string{cert: "", none: none, huge: huge + " is larger than", key: key} {
		b, err := tlsfiles.LoadBundle(file)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) || (b == nil) != (want != "") {
			t.Errorf("%s: %v, want %q", file, err, want)
		}
	}
}

// TestFailedWriteLeavesNoFiles checks that a failed write leaves no files.
func TestFailedWriteLeavesNoFiles(t *testing.T) {
	dir := t.TempDir()
	if err := tlsfiles.WriteFile(filepath.Join(dir, "none", "f"), []byte("x"), 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing folder: %v, want error %v", err, fs.ErrNotExist)
	}
	taken := filepath.Join(dir, "taken")
	if err := os.MkdirAll(filepath.Join(taken, "by"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := tlsfiles.WriteFile(taken, []byte("x"), 0o600); err == nil {
		t.Error("WriteFile() to the path of a folder = nil, want an error")
	}
	remaining, err := os.ReadDir(dir)
	if err != nil || len(remaining) != 1 {
		t.Errorf("got files %v, %v, want one left", remaining, err)
	}
}

// TestFirstExpiringReturnsEarliestOfChain checks that of a chain the certificate that expires first
// is returned.
func TestFirstExpiringReturnsEarliestOfChain(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	cert, key := loadOrCreatePair(t, tlsfiles.SelfSigned{Dir: dir, Name: "x"})
	sooner, _ := loadOrCreatePair(t, tlsfiles.SelfSigned{
		Dir:  dir,
		Name: "sooner",
		Now:  func() time.Time { return now.AddDate(0, -6, 0) },
	})
	later, _ := loadOrCreatePair(t, tlsfiles.SelfSigned{
		Dir:  dir,
		Name: "later",
		Now:  func() time.Time { return now.AddDate(0, 6, 0) },
	})
	for name, test := range map[string]struct {
		chain []byte
		want  string
	}{
		"sooner":  {chain: append(read(t, later), read(t, sooner)...), want: "sooner"},
		"later":   {chain: read(t, later), want: "x"},
		"damaged": {chain: tlsfiles.EncodeCertificate([]byte("x")), want: "x"},
	} {
		pair, err := tlsfiles.FixedPair(append(read(t, cert), test.chain...), read(t, key))
		if err != nil {
			t.Fatal(err)
		}
		if got := pair.FirstExpiring().Subject.CommonName; !strings.HasPrefix(got, test.want+"-self-signed@") {
			t.Errorf("%s: %s, want prefix %q", name, got, test.want+"-self-signed@")
		}
		if changed, err := pair.Reload(); changed || err != nil || pair.Files() != nil {
			t.Errorf("FixedPair: Reload() = %t, %v, Files() = %v, want no change and no files", changed, err, pair.Files())
		}
	}
}

// TestPairSignedByCAIsNotReplaced checks that a certificate of a CA stays, although it has expired
// and lacks the wanted names.
func TestPairSignedByCAIsNotReplaced(t *testing.T) {
	dir := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	modified := time.Now()
	certificate := &x509.Certificate{Subject: pkix.Name{CommonName: "ca"}}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "leaf"},
		NotBefore:    modified.AddDate(-1, 0, 0),
		NotAfter:     modified.AddDate(0, 0, -1),
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, certificate, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyPEM, err := tlsfiles.EncodeECKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "x.crt"), tlsfiles.EncodeCertificate(der))
	write(t, filepath.Join(dir, "x.key"), keyPEM)
	cert, _ := loadOrCreatePair(t, tlsfiles.SelfSigned{Dir: dir, Name: "x", DNS: []string{"other"}})
	if !bytes.Equal(read(t, cert), tlsfiles.EncodeCertificate(der)) {
		t.Error("pair of a CA: got another certificate in the file, want it unchanged")
	}
}

// TestUnwritableKeyFileIsAnError checks that a pair is not created if its key cannot be written.
func TestUnwritableKeyFileIsAnError(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "x.key", "taken"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, _, err := tlsfiles.LoadOrCreateSelfSigned(tlsfiles.SelfSigned{Dir: dir, Name: "x"}); err == nil {
		t.Error("LoadOrCreateSelfSigned() with a folder at the path of the key = nil, want an error")
	}
}

// TestUnreadablePairIsNotReplaced checks that an unreadable key is an error and that its
// certificate stays.
func TestUnreadablePairIsNotReplaced(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root reads everything")
	}
	dir := t.TempDir()
	cert, key := loadOrCreatePair(t, tlsfiles.SelfSigned{Dir: dir, Name: "x"})
	before := read(t, cert)
	if err := os.Chmod(key, 0); err != nil {
		t.Fatal(err)
	}
	if _, _, err := tlsfiles.LoadOrCreateSelfSigned(tlsfiles.SelfSigned{
		Dir:  dir,
		Name: "x",
	}); !errors.Is(err, fs.ErrPermission) || !bytes.Equal(read(t, cert), before) {
		t.Errorf("got error %v, want %v and an unchanged certificate", err, fs.ErrPermission)
	}
}

// missingSource is a source whose folder does not exist.
type missingSource struct{ reloaded chan struct{} }

func (missingSource) Files() []string { return []string{"/no/such/folder/file"} }

func (l missingSource) Reload() (bool, error) {
	l.reloaded <- struct{}{}
	return false, errors.New("file not found")
}

// TestFoldersThatCannotBeWatched checks that files are polled if their folder cannot be watched.
func TestFoldersThatCannotBeWatched(t *testing.T) {
	var log bytes.Buffer
	l := missingSource{make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- tlsfiles.Watch(ctx, slog.New(slog.NewTextHandler(&log, nil)), l) }()
	<-l.reloaded
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) || !strings.Contains(log.String(), "polling files") ||
		!strings.Contains(log.String(), "file not found") {
		t.Errorf("%v, logged %s, want %v, and lines about polling and the missing file", err, &log, context.Canceled)
	}
}
