package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"binnacle/deploy/internal/balancer"
	"binnacle/libs/serving/tlsfiles"
)

// TestParseServiceRejectsIncompleteAddresses checks the syntax of --balance.
func TestParseServiceRejectsIncompleteAddresses(t *testing.T) {
	for text, want := range map[string]string{
		":6443=a:1,b:2":       "",
		"127.0.0.1:1=[::1]:2": "",
		":6443":               "is not ADDRESS=INSTANCE,INSTANCE",
		":6443=":              "missing port",
		"6443=a:1":            "missing port",
		":6443=a":             "missing port",
	} {
		service, err := parseService(text)
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
		if text == ":6443=a:1,b:2" && (service.listen != ":6443" || !slices.Equal(service.instances, []string{"a:1", "b:2"})) {
			t.Errorf("%s: got %+v, want address :6443 and instances a:1, b:2", text, service)
		}
	}
}

// instance starts a server whose /readyz responds with a code and a body. It returns the server's
// address and the file of its certificate.
func instance(t *testing.T, code int, body string) (address, ca string) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			code = http.StatusNotFound
		}
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(server.Close)
	ca = filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, tlsfiles.EncodeCertificate(server.Certificate().Raw), 0o600); err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(server.URL, "https://"), ca
}

// TestProberReportsStateAndFailingChecks checks the state of ready, failing and unreachable
// instances, and the result of the command check.
func TestProberReportsStateAndFailingChecks(t *testing.T) {
	ready, ca := instance(t, http.StatusOK, "ok")
	busy, _ := instance(t, http.StatusInternalServerError, "[+]ping ok\n[-]shutdown failed: reason withheld\n")
	prober, err := newProber(ca) // all httptest servers have the same certificate
	if err != nil {
		t.Fatal(err)
	}
	defer prober.client.CloseIdleConnections()
	for address, want := range map[string]balancer.State{
		ready:         balancer.Ready,
		busy:          balancer.Busy,
		"127.0.0.1:1": balancer.Silent,
	} {
		if got := prober.stateOf(t.Context(), address); got != want {
			t.Errorf("%s: got %d, want %d", address, got, want)
		}
	}
	if err := prober.checkReady(t.Context(), busy); err == nil || err.Error() != "500, failing checks: shutdown" {
		t.Errorf("busy: got %v, want error \"500, failing checks: shutdown\"", err)
	}
	if err := runCheck(t.Context(), []string{"--ca-file=" + ca, ready}); err != nil {
		t.Errorf("check of a ready instance: got error %v, want none", err)
	}
	if err := runCheck(t.Context(), []string{"--ca-file=" + ca, ready, busy}); err == nil {
		t.Error("runCheck() of a ready and a busy server = nil, want an error")
	}
}

// TestProberVerifiesCertificates checks that an instance whose certificate lacks the requested name
// counts as silent, and that a missing CA file is an error.
func TestProberVerifiesCertificates(t *testing.T) {
	address, ca := instance(t, http.StatusOK, "ok")
	prober, err := newProber(ca)
	if err != nil {
		t.Fatal(err)
	}
	defer prober.client.CloseIdleConnections()
	_, port, _ := strings.Cut(address, ":")
	if got := prober.stateOf(t.Context(), "localhost:"+port); got != balancer.Silent { // not in the certificate
		t.Errorf("got state %d, want %v", got, balancer.Silent)
	}
	if _, err := newProber(filepath.Join(t.TempDir(), "none")); err == nil || !strings.Contains(err.Error(), "--ca-file") {
		t.Errorf("without CA: got %v, want an error about --ca-file", err)
	}
}
