package tlsfiles_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"binnacle/libs/serving/tlsfiles"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// loadOrCreatePair returns the files of a self-signed pair.
func loadOrCreatePair(t *testing.T, selfSigned tlsfiles.SelfSigned) (cert, key string) {
	t.Helper()
	cert, key, err := tlsfiles.LoadOrCreateSelfSigned(selfSigned)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := tlsfiles.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestSelfSignedPairIsUsable checks that a client that trusts the certificate accepts all its
// names.
func TestSelfSignedPairIsUsable(t *testing.T) {
	cert, key := loadOrCreatePair(t, tlsfiles.SelfSigned{
		Dir: filepath.Join(t.TempDir(), "a", "b"), Name: "apiserver",
		DNS: []string{"localhost", "kubernetes.default.svc"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	})
	pair, err := tlsfiles.LoadPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := tlsfiles.LoadBundle(cert)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"localhost", "kubernetes.default.svc", "127.0.0.1", "::1"} {
		if _, err := pair.Certificate().Leaf.Verify(x509.VerifyOptions{Roots: bundle.Pool(), DNSName: name}); err != nil {
			t.Errorf("verification of the certificate for %s: got error %v, want none", name, err)
		}
	}
	info, err := os.Stat(key)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("key file: got mode %v, %v, want 0600", info.Mode(), err)
	}
	// Old clients offer only cipher suites without ephemeral keys.
	suites := []uint16{tls.TLS_RSA_WITH_AES_256_CBC_SHA}
	near, far := net.Pipe()
	defer near.Close()
	go func() {
		defer far.Close()
		_ = tls.Server(far, &tls.Config{
			Certificates: []tls.Certificate{*pair.Certificate()},
			CipherSuites: suites,
			MaxVersion:   tls.VersionTLS12,
		}).Handshake()
	}()
	client := tls.Client(near, &tls.Config{
		RootCAs:      bundle.Pool(),
		ServerName:   "localhost",
		CipherSuites: suites,
		MaxVersion:   tls.VersionTLS12,
	})
	if err := client.HandshakeContext(t.Context()); err != nil {
		t.Errorf("handshake with a cipher suite without ephemeral keys: got error %v, want none", err)
	}
}

// TestSelfSignedPairIsReusedWhileItFits checks when an existing pair is replaced.
func TestSelfSignedPairIsReusedWhileItFits(t *testing.T) {
	start := time.Now()
	tests := []struct {
		name   string
		change func(selfSigned *tlsfiles.SelfSigned)
		damage func(t *testing.T, cert, key string)
		same   bool
	}{
		{name: "as it was", change: func(*tlsfiles.SelfSigned) {}, damage: nil, same: true},
		{name: "fewer names", change: func(selfSigned *tlsfiles.SelfSigned) { selfSigned.DNS = nil }, damage: nil, same: true},
		{name: "another name", change: func(selfSigned *tlsfiles.SelfSigned) { selfSigned.DNS = []string{"other"} }, damage: nil, same: false},
		{
			name:   "another address",
			change: func(selfSigned *tlsfiles.SelfSigned) { selfSigned.IPs = []net.IP{net.IPv4(10, 0, 0, 1)} },
			damage: nil,
			same:   false,
		},
		{
			name: "half a year later",
			change: func(selfSigned *tlsfiles.SelfSigned) {
				selfSigned.Now = func() time.Time { return start.AddDate(0, 6, 0) }
			},
			damage: nil,
			same:   true,
		},
		{
			name: "a month before expiry",
			change: func(selfSigned *tlsfiles.SelfSigned) {
				selfSigned.Now = func() time.Time { return start.AddDate(0, 11, 10) }
			},
			damage: nil,
			same:   false,
		},
		{
			name: "before it is valid",
			change: func(selfSigned *tlsfiles.SelfSigned) {
				selfSigned.Now = func() time.Time { return start.AddDate(-1, 0, 0) }
			},
			damage: nil,
			same:   false,
		},
		{
			name:   "key lost",
			change: func(*tlsfiles.SelfSigned) {},
			damage: func(t *testing.T, _, key string) { os.Remove(key) },
			same:   false,
		},
		{
			name:   "certificate cut short",
			change: func(*tlsfiles.SelfSigned) {},
			damage: func(t *testing.T, cert, _ string) { write(t, cert, []byte("-----BEGIN")) },
			same:   false,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			selfSigned := tlsfiles.SelfSigned{Dir: t.TempDir(), Name: "x", DNS: []string{"localhost"}}
			cert, key := loadOrCreatePair(t, selfSigned)
			before := read(t, cert)
			if tt.damage != nil {
				tt.damage(t, cert, key)
			}
			tt.change(&selfSigned)
			loadOrCreatePair(t, selfSigned)
			if same := bytes.Equal(before, read(t, cert)); same != tt.same {
				t.Errorf("same pair: %v, want %v", same, tt.same)
			}
			if _, err := tlsfiles.LoadPair(cert, key); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestReloadOfInvalidFilesKeepsPreviousOnes checks that a damaged file does not replace the pair
// and the bundle in use.
func TestReloadOfInvalidFilesKeepsPreviousOnes(t *testing.T) {
	dir := t.TempDir()
	cert, key := loadOrCreatePair(t, tlsfiles.SelfSigned{Dir: dir, Name: "x"})
	otherPair, otherKey := loadOrCreatePair(t, tlsfiles.SelfSigned{Dir: dir, Name: "y"})
	validFile, goodKey := read(t, cert), read(t, key)
	damages := []struct {
		name  string
		apply func()
	}{
		{name: "certificate gone", apply: func() { os.Remove(cert) }},
		{name: "certificate empty", apply: func() { write(t, cert, nil) }},
		{name: "certificate cut short", apply: func() { write(t, cert, validFile[:len(validFile)/2]) }},
		{name: "another pair's key", apply: func() { write(t, key, read(t, otherKey)) }},
		{name: "key instead of certificate", apply: func() { write(t, cert, goodKey) }},
		{name: "larger than any certificate", apply: func() { write(t, cert, make([]byte, 5<<20)) }},
	}
	for _, test := range damages {
		t.Run(test.name, func(t *testing.T) {
			write(t, cert, validFile)
			write(t, key, goodKey)
			pair, err := tlsfiles.LoadPair(cert, key)
			if err != nil {
				t.Fatal(err)
			}
			bundle, err := tlsfiles.LoadBundle(cert)
			if err != nil {
				t.Fatal(err)
			}
			inUse := pair.Certificate()
			test.apply()
			if changed, err := pair.Reload(); changed || err == nil {
				t.Errorf("Reload() = %v, %v; want an error", changed, err)
			}
			if pair.Certificate() != inUse {
				t.Error("failed Reload(): got another pair in use, want it unchanged")
			}
			if _, err := bundle.Reload(); err != nil && !bytes.Equal(bundle.PEM(), validFile) {
				t.Error("failed Reload(): got another bundle in use, want it unchanged")
			}
		})
	}
	write(t, cert, validFile)
	write(t, key, goodKey)
	pair, err := tlsfiles.LoadPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	if changed, err := pair.Reload(); changed || err != nil {
		t.Errorf("unchanged files: Reload() = %t, %v, want false", changed, err)
	}
	write(t, cert, read(t, otherPair))
	write(t, key, read(t, otherKey))
	if changed, err := pair.Reload(); !changed || err != nil {
		t.Errorf("both files changed: Reload() = %t, %v, want true", changed, err)
	}
}

// reloadNotifier sends a value for each reload that changed the content.
type reloadNotifier struct {
	tlsfiles.Source
	changed chan struct{}
	once    sync.Once
	loaded  chan struct{}
}

func (n *reloadNotifier) Reload() (bool, error) {
	changed, err := n.Source.Reload()
	if changed {
		n.changed <- struct{}{}
	}
	n.once.Do(func() { close(n.loaded) })
	return changed, err
}

// TestWatchFollowsReplacedFilesAndSymbolicLinks checks that Watch reloads files that are replaced
// directly or through symbolic links of a mounted volume.
func TestWatchFollowsReplacedFilesAndSymbolicLinks(t *testing.T) {
	dir := t.TempDir()
	firstPair, _ := loadOrCreatePair(t, tlsfiles.SelfSigned{Dir: filepath.Join(dir, "1"), Name: "ca"})
	secondPair, _ := loadOrCreatePair(t, tlsfiles.SelfSigned{Dir: filepath.Join(dir, "2"), Name: "ca"})
	thirdPair, _ := loadOrCreatePair(t, tlsfiles.SelfSigned{Dir: filepath.Join(dir, "3"), Name: "ca"})

	// A mounted secret: the file is a symbolic link into ..data, which is itself a link that is
	// replaced.
	mount := filepath.Join(dir, "mount")
	link := func(target string) {
		t.Helper()
		tmp := filepath.Join(mount, "..tmp")
		if err := errors.Join(os.Symlink(target, tmp), os.Rename(tmp, filepath.Join(mount, "..data"))); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(mount, 0o700); err != nil {
		t.Fatal(err)
	}
	link(filepath.Dir(firstPair))
	file := filepath.Join(mount, "ca.crt")
	if err := os.Symlink(filepath.Join("..data", "ca.crt"), file); err != nil {
		t.Fatal(err)
	}
	bundle, err := tlsfiles.LoadBundle(file)
	if err != nil {
		t.Fatal(err)
	}
	notifier := &reloadNotifier{Source: bundle, changed: make(chan struct{}), loaded: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- tlsfiles.Watch(ctx, slog.New(slog.DiscardHandler), notifier) }()
	<-notifier.loaded

	link(filepath.Dir(secondPair))
	<-notifier.changed
	if !bytes.Equal(bundle.PEM(), read(t, secondPair)) {
		t.Error("after the link changed: got the old bundle, want the new one")
	}
	write(t, file, read(t, thirdPair))
	<-notifier.changed
	if !bytes.Equal(bundle.PEM(), read(t, thirdPair)) {
		t.Error("after the file was replaced: got the old bundle, want the new one")
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Watch() = %v, want error %v", err, context.Canceled)
	}
}

// TestParseCertificatesCountsPEMBlocks checks which PEM data has how many certificates.
func TestParseCertificatesCountsPEMBlocks(t *testing.T) {
	cert, key := loadOrCreatePair(t, tlsfiles.SelfSigned{Dir: t.TempDir(), Name: "x"})
	c, k := string(read(t, cert)), string(read(t, key))
	tests := []struct {
		name, data string
		want       int // 0: an error
	}{
		{name: "one", data: c, want: 1},
		{name: "two", data: c + c, want: 2},
		{name: "with a key and text between", data: "text\n" + k + c + "text\n" + c, want: 2},
		{name: "none", data: k, want: 0},
		{name: "empty", data: "", want: 0},
		{name: "damaged", data: strings.Replace(c, "MII", "MIJ", 1), want: 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			certs, err := tlsfiles.ParseCertificates([]byte(tt.data))
			if len(certs) != tt.want || (err == nil) != (tt.want > 0) {
				t.Errorf("%d certificates, %v; want %d", len(certs), err, tt.want)
			}
		})
	}
}

// FuzzParseCertificates checks that parsing returns either certificates or an error.
func FuzzParseCertificates(f *testing.F) {
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		certs, err := tlsfiles.ParseCertificates(data)
		if (err == nil) != (len(certs) > 0) {
			t.Errorf("got %d certificates and error %v, want either", len(certs), err)
		}
	})
}

// BenchmarkSelfSigned measures the creation of a pair.
func BenchmarkSelfSigned(b *testing.B) {
	dir := b.TempDir()
	for i := range b.N {
		if _, _, err := tlsfiles.LoadOrCreateSelfSigned(tlsfiles.SelfSigned{
			Dir:  dir,
			Name: string(rune('a' + i%26)),
			DNS:  []string{"x"},
			Now: func() time.Time {
				return time.Now().AddDate(i+1, 0, 0)
			},
		}); err != nil {
			b.Fatal(err)
		}
	}
}
