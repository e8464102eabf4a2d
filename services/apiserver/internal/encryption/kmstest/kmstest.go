// Package kmstest is a KMS plugin of versions 1 and 2 for tests: a real gRPC server at a
// socket, which hangs, dies and changes its key when it is told to.
package kmstest

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kmsv1 "k8s.io/kms/apis/v1beta1"
	kmsv2 "k8s.io/kms/apis/v2"
)

// Plugin is one.
type Plugin struct {
	t      testing.TB
	socket string

	mu     sync.Mutex
	server *grpc.Server
	ended  chan struct{}
	// key, health and version are what Status tells, encryptKey the key that Encrypt
	// answers with if it is another.
	key, health, version, encryptKey string
	refuse                           bool
	hang                             chan struct{} // nil: answers
	hangOn                           string        // empty: every method
	calls                            map[string]int
	has                              map[string]bool // keys
	fails                            map[string]codes.Code
	garble                           bool
	answer                           []byte // of Encrypt, if not nil
	old                              string // what Version of version 1 tells
}

// New starts a plugin, which ends with the test.
func New(t testing.TB) *Plugin {
	t.Helper()
	dir, err := os.MkdirTemp("", "kms") // paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	p := &Plugin{t: t, socket: filepath.Join(dir, "s"), key: "key-1", health: "ok", version: "v2", old: "v1beta1", calls: map[string]int{}, has: map[string]bool{"key-1": true}, fails: map[string]codes.Code{}}
	t.Cleanup(func() {
		p.Answer()
		p.Stop()
		_ = os.RemoveAll(dir)
	})
	p.Start()
	return p
}

// Endpoint is where the plugin is.
func (p *Plugin) Endpoint() string { return "unix://" + p.socket }

// Start lets the plugin be there (again).
func (p *Plugin) Start() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = os.Remove(p.socket)
	l, err := net.Listen("unix", p.socket)
	if err != nil {
		p.t.Fatal(err)
	}
	s, ended := grpc.NewServer(), make(chan struct{})
	kmsv2.RegisterKeyManagementServiceServer(s, (*v2)(p))
	kmsv1.RegisterKeyManagementServiceServer(s, (*v1)(p))
	p.server, p.ended = s, ended
	go func() {
		defer close(ended)
		_ = s.Serve(l) // until it is stopped
	}()
}

// Stop lets the plugin be gone.
func (p *Plugin) Stop() {
	p.mu.Lock()
	s, ended := p.server, p.ended
	p.server = nil
	p.mu.Unlock()
	if s != nil {
		s.Stop()
		<-ended
	}
}

// Hang lets no call be answered until Answer.
func (p *Plugin) Hang() { p.HangOn("") }

// HangOn lets calls of one method hang until Answer.
func (p *Plugin) HangOn(method string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hangOn = method
	if p.hang == nil {
		p.hang = make(chan struct{})
	}
}

// Answer ends Hang.
func (p *Plugin) Answer() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hang != nil {
		close(p.hang)
		p.hang = nil
	}
}

// Refuse lets Encrypt and Decrypt fail, or not.
func (p *Plugin) Refuse(refuse bool) { p.set(func() { p.refuse = refuse }) }

// UseKey lets the plugin use another key.
func (p *Plugin) UseKey(id string) { p.set(func() { p.key, p.has[id] = id, true }) }

// EncryptWith lets Encrypt answer with another key than Status names; "" ends that.
func (p *Plugin) EncryptWith(id string) { p.set(func() { p.encryptKey, p.has[id] = id, true }) }

// Say sets what Status tells of the plugin's health.
func (p *Plugin) Say(health string) { p.set(func() { p.health = health }) }

// Lose makes the plugin forget a key.
func (p *Plugin) Lose(id string) { p.set(func() { delete(p.has, id) }) }

// Fail lets Decrypt refuse a key with a code; codes.OK ends that.
func (p *Plugin) Fail(id string, code codes.Code) { p.set(func() { p.fails[id] = code }) }

// Garble lets Decrypt answer with keys that are none of those that were encrypted, or not.
func (p *Plugin) Garble(garble bool) { p.set(func() { p.garble = garble }) }

// AnswerWith lets Encrypt answer with what it did not encrypt; nil ends that.
func (p *Plugin) AnswerWith(sealed []byte) { p.set(func() { p.answer = sealed }) }

// SpeakOld sets the version that a plugin of version 1 tells.
func (p *Plugin) SpeakOld(version string) { p.set(func() { p.old = version }) }

// Speak sets the version that Status tells.
func (p *Plugin) Speak(version string) { p.set(func() { p.version = version }) }

// encrypted is what Encrypt answers; p.mu is held.
func (p *Plugin) encrypted(b []byte, key string) []byte {
	if p.answer != nil {
		return p.answer
	}
	return mask(b, key)
}

func (p *Plugin) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

// Calls is how often a method was called.
func (p *Plugin) Calls(method string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls[method]
}

var errRefused = errors.New("refused")

// call is the beginning of a call.
func (p *Plugin) call(ctx context.Context, method string) error {
	p.mu.Lock()
	p.calls[method]++
	hang, refuse := p.hang, p.refuse && (method == "Encrypt" || method == "Decrypt")
	if p.hangOn != "" && p.hangOn != method {
		hang = nil
	}
	p.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if refuse {
		return status.Error(codes.Internal, errRefused.Error())
	}
	return nil
}

// mask is no cipher; it keeps lengths.
func mask(b []byte, key string) []byte {
	out := bytes.Clone(b)
	for i := range out {
		out[i] ^= 0x5a ^ key[len(key)-1]
	}
	return out
}

type v2 Plugin

// Status implements the service.
func (s *v2) Status(ctx context.Context, _ *kmsv2.StatusRequest) (*kmsv2.StatusResponse, error) {
	p := (*Plugin)(s)
	if err := p.call(ctx, "Status"); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return &kmsv2.StatusResponse{Version: p.version, Healthz: p.health, KeyId: p.key}, nil
}

// Encrypt implements the service.
func (s *v2) Encrypt(ctx context.Context, r *kmsv2.EncryptRequest) (*kmsv2.EncryptResponse, error) {
	p := (*Plugin)(s)
	if err := p.call(ctx, "Encrypt"); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	id := p.key
	if p.encryptKey != "" {
		id = p.encryptKey
	}
	return &kmsv2.EncryptResponse{Ciphertext: p.encrypted(r.Plaintext, id), KeyId: id, Annotations: map[string][]byte{"local.example": []byte("note")}}, nil
}

// Decrypt implements the service.
func (s *v2) Decrypt(ctx context.Context, r *kmsv2.DecryptRequest) (*kmsv2.DecryptResponse, error) {
	p := (*Plugin)(s)
	if err := p.call(ctx, "Decrypt"); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.has[r.KeyId] || string(r.Annotations["local.example"]) != "note" {
		return nil, status.Error(codes.InvalidArgument, "no such key")
	}
	if code := p.fails[r.KeyId]; code != codes.OK {
		return nil, status.Error(code, errRefused.Error())
	}
	if p.garble {
		return &kmsv2.DecryptResponse{Plaintext: r.Ciphertext}, nil
	}
	return &kmsv2.DecryptResponse{Plaintext: mask(r.Ciphertext, r.KeyId)}, nil
}

type v1 Plugin

// Version implements the service.
func (s *v1) Version(ctx context.Context, _ *kmsv1.VersionRequest) (*kmsv1.VersionResponse, error) {
	p := (*Plugin)(s)
	if err := p.call(ctx, "Version"); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return &kmsv1.VersionResponse{Version: p.old}, nil
}

// Encrypt implements the service.
func (s *v1) Encrypt(ctx context.Context, r *kmsv1.EncryptRequest) (*kmsv1.EncryptResponse, error) {
	p := (*Plugin)(s)
	if err := p.call(ctx, "Encrypt"); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return &kmsv1.EncryptResponse{Cipher: p.encrypted(r.Plain, "1")}, nil
}

// Decrypt implements the service.
func (s *v1) Decrypt(ctx context.Context, r *kmsv1.DecryptRequest) (*kmsv1.DecryptResponse, error) {
	p := (*Plugin)(s)
	if err := p.call(ctx, "Decrypt"); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.garble {
		return &kmsv1.DecryptResponse{Plain: r.Cipher}, nil
	}
	return &kmsv1.DecryptResponse{Plain: mask(r.Cipher, "1")}, nil
}
