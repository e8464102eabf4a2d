// Package kmstest is a KMS plugin of versions 1 and 2 for tests: a real gRPC server at a socket.
// Tests can make it hang, stop and change its key.
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

// Plugin is a KMS plugin for tests. Its methods are safe for concurrent use.
type Plugin struct {
	t      testing.TB
	socket string

	mu      sync.Mutex
	server  *grpc.Server
	stopped chan struct{} // closed when server has ended
	// key, health and version are returned by Status.
	key, health, version string
	// encryptKey is the key that Encrypt returns, if it differs from key.
	encryptKey string
	// keys holds the existing keys.
	keys map[string]bool
	// rejectCalls makes Encrypt and Decrypt fail.
	rejectCalls bool
	// hang blocks calls of hangMethod, or of all methods if that is empty, until it is closed. nil
	// means that calls do not block.
	hang       chan struct{}
	hangMethod string
	// calls counts the calls by method.
	calls map[string]int
	// decryptErrors holds the codes with which Decrypt rejectCalls keys.
	decryptErrors map[string]codes.Code
	// wrongKeys makes Decrypt return wrong data encryption keys.
	wrongKeys bool
	// ciphertext is the response of Encrypt, if not nil.
	ciphertext []byte
	// v1Version is returned by Version of version 1.
	v1Version string
}

// New starts a plugin, which ends with the test.
func New(t testing.TB) *Plugin {
	t.Helper()
	dir, err := os.MkdirTemp("", "kms") // socket paths must be short
	if err != nil {
		t.Fatal(err)
	}
	plugin := &Plugin{
		t:             t,
		socket:        filepath.Join(dir, "s"),
		key:           "key-1",
		health:        "ok",
		version:       "v2",
		v1Version:     "v1beta1",
		calls:         map[string]int{},
		keys:          map[string]bool{"key-1": true},
		decryptErrors: map[string]codes.Code{},
	}
	t.Cleanup(func() {
		plugin.Resume()
		plugin.Stop()
		_ = os.RemoveAll(dir)
	})
	plugin.Start()
	return plugin
}

// Endpoint returns the address of the plugin.
func (p *Plugin) Endpoint() string { return "unix://" + p.socket }

// Start starts the plugin (again).
func (p *Plugin) Start() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = os.Remove(p.socket)
	listener, err := net.Listen("unix", p.socket)
	if err != nil {
		p.t.Fatal(err)
	}
	s := grpc.NewServer()
	stopped := make(chan struct{})
	kmsv2.RegisterKeyManagementServiceServer(s, (*v2)(p))
	kmsv1.RegisterKeyManagementServiceServer(s, (*v1)(p))
	p.server = s
	p.stopped = stopped
	go func() {
		defer close(stopped)
		_ = s.Serve(listener) // until it is stopped
	}()
}

// Stop stops the plugin.
func (p *Plugin) Stop() {
	p.mu.Lock()
	s := p.server
	stopped := p.stopped
	p.server = nil
	p.mu.Unlock()
	if s != nil {
		s.Stop()
		<-stopped
	}
}

// Hang blocks all calls until Resume.
func (p *Plugin) Hang() { p.HangMethod("") }

// HangMethod blocks calls of one method until Resume.
func (p *Plugin) HangMethod(method string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hangMethod = method
	if p.hang == nil {
		p.hang = make(chan struct{})
	}
}

// Resume ends Hang and HangMethod.
func (p *Plugin) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hang != nil {
		close(p.hang)
		p.hang = nil
	}
}

// RejectCalls sets whether Encrypt and Decrypt fail.
func (p *Plugin) RejectCalls(reject bool) { p.update(func() { p.rejectCalls = reject }) }

// UseKey switches the plugin to another key.
func (p *Plugin) UseKey(id string) {
	p.update(func() {
		p.key = id
		p.keys[id] = true
	})
}

// EncryptWith makes Encrypt return another key than Status; "" ends that.
func (p *Plugin) EncryptWith(id string) {
	p.update(func() {
		p.encryptKey = id
		p.keys[id] = true
	})
}

// SetHealth sets the health that Status returns.
func (p *Plugin) SetHealth(health string) { p.update(func() { p.health = health }) }

// RemoveKey removes a key from the plugin.
func (p *Plugin) RemoveKey(id string) { p.update(func() { delete(p.keys, id) }) }

// FailDecrypt makes Decrypt reject a key with a code; codes.OK ends that.
func (p *Plugin) FailDecrypt(id string, code codes.Code) {
	p.update(func() { p.decryptErrors[id] = code })
}

// ReturnWrongKeys sets whether Decrypt returns wrong data encryption keys.
func (p *Plugin) ReturnWrongKeys(wrong bool) { p.update(func() { p.wrongKeys = wrong }) }

// SetCiphertext sets the ciphertext that Encrypt returns; nil ends that.
func (p *Plugin) SetCiphertext(sealed []byte) { p.update(func() { p.ciphertext = sealed }) }

// SetV1Version sets the version that a plugin of version 1 returns.
func (p *Plugin) SetV1Version(version string) { p.update(func() { p.v1Version = version }) }

// SetVersion sets the version that Status returns.
func (p *Plugin) SetVersion(version string) { p.update(func() { p.version = version }) }

// encryptedResponse returns the response of Encrypt. The caller holds p.mu.
func (p *Plugin) encryptedResponse(b []byte, key string) []byte {
	if p.ciphertext != nil {
		return p.ciphertext
	}
	return mask(b, key)
}

// update changes the plugin while no call reads it.
func (p *Plugin) update(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

// Calls returns how often a method was called.
func (p *Plugin) Calls(method string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls[method]
}

var errRejected = errors.New("rejected")

// beginCall counts a call and blocks it while the plugin hangs. It returns an error if the plugin
// rejectCalls the call.
func (p *Plugin) beginCall(ctx context.Context, method string) error {
	p.mu.Lock()
	p.calls[method]++
	hang := p.hang
	rejectCalls := p.rejectCalls && (method == "Encrypt" || method == "Decrypt")
	if p.hangMethod != "" && p.hangMethod != method {
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
	if rejectCalls {
		return status.Error(codes.Internal, errRejected.Error())
	}
	return nil
}

// mask stands for encryption and decryption: masking twice returns the original. It keeps lengths.
func mask(b []byte, key string) []byte {
	out := bytes.Clone(b)
	for i := range out {
		out[i] ^= 0x5a ^ key[len(key)-1]
	}
	return out
}

// v2 serves version 2 of the plugin API.
type v2 Plugin

// Status implements the service.
func (s *v2) Status(ctx context.Context, _ *kmsv2.StatusRequest) (*kmsv2.StatusResponse, error) {
	p := (*Plugin)(s)
	if err := p.beginCall(ctx, "Status"); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return &kmsv2.StatusResponse{Version: p.version, Healthz: p.health, KeyId: p.key}, nil
}

// Encrypt implements the service.
func (s *v2) Encrypt(ctx context.Context, encryptRequest *kmsv2.EncryptRequest) (*kmsv2.EncryptResponse, error) {
	p := (*Plugin)(s)
	if err := p.beginCall(ctx, "Encrypt"); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	id := p.key
	if p.encryptKey != "" {
		id = p.encryptKey
	}
	return &kmsv2.EncryptResponse{
		Ciphertext:  p.encryptedResponse(encryptRequest.Plaintext, id),
		KeyId:       id,
		Annotations: map[string][]byte{"local.example": []byte("note")},
	}, nil
}

// Decrypt implements the service.
func (s *v2) Decrypt(ctx context.Context, decryptRequest *kmsv2.DecryptRequest) (*kmsv2.DecryptResponse, error) {
	plugin := (*Plugin)(s)
	if err := plugin.beginCall(ctx, "Decrypt"); err != nil {
		return nil, err
	}
	plugin.mu.Lock()
	defer plugin.mu.Unlock()
	if !plugin.keys[decryptRequest.KeyId] || string(decryptRequest.Annotations["local.example"]) != "note" {
		return nil, status.Error(codes.InvalidArgument, "no such key")
	}
	if code := plugin.decryptErrors[decryptRequest.KeyId]; code != codes.OK {
		return nil, status.Error(code, errRejected.Error())
	}
	if plugin.wrongKeys {
		return &kmsv2.DecryptResponse{Plaintext: decryptRequest.Ciphertext}, nil
	}
	return &kmsv2.DecryptResponse{Plaintext: mask(decryptRequest.Ciphertext, decryptRequest.KeyId)}, nil
}

// v1 serves version 1 of the plugin API.
type v1 Plugin

// Version implements the service.
func (s *v1) Version(ctx context.Context, _ *kmsv1.VersionRequest) (*kmsv1.VersionResponse, error) {
	p := (*Plugin)(s)
	if err := p.beginCall(ctx, "Version"); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return &kmsv1.VersionResponse{Version: p.v1Version}, nil
}

// Encrypt implements the service.
func (s *v1) Encrypt(ctx context.Context, r *kmsv1.EncryptRequest) (*kmsv1.EncryptResponse, error) {
	p := (*Plugin)(s)
	if err := p.beginCall(ctx, "Encrypt"); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return &kmsv1.EncryptResponse{Cipher: p.encryptedResponse(r.Plain, "1")}, nil
}

// Decrypt implements the service.
func (s *v1) Decrypt(ctx context.Context, r *kmsv1.DecryptRequest) (*kmsv1.DecryptResponse, error) {
	p := (*Plugin)(s)
	if err := p.beginCall(ctx, "Decrypt"); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wrongKeys {
		return &kmsv1.DecryptResponse{Plain: r.Cipher}, nil
	}
	return &kmsv1.DecryptResponse{Plain: mask(r.Cipher, "1")}, nil
}
