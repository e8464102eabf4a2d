package kms

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"
	kmsv1 "k8s.io/kms/apis/v1beta1"

	"binnacle/services/apiserver/internal/storage/encryption/ciphers"
)

const (
	v1Version = "v1beta1"
	v1KeySize = 32
	// v1LengthSize is the size of the length of an encrypted key, which comes first.
	v1LengthSize = 2
)

// v1 is a Provider of version 1. Its stored form is the length of an encrypted key in two bytes,
// that key, and the value encrypted with it by GCM; before 1.25 by CBC.
type v1 struct {
	Config
	conn      *connection
	plugin    kmsv1.KeyManagementServiceClient
	health    healthCache
	keys      *lru.Cache[string, *v1Cipher] // nil caches none
	cacheSize int
	responsiveness
	version struct { // whether the plugin's version was confirmed
		mu sync.Mutex
		ok bool
	}
}

// v1Cipher decrypts with GCM or, for older values, with CBC.
type v1Cipher struct {
	gcm *ciphers.GCM
	cbc *ciphers.CBC
}

// NewV1 connects to a plugin of version 1.
func NewV1(config Config) (Provider, error) {
	config.Intervals = config.Intervals.withDefaults()
	conn, err := newConnection(&config)
	if err != nil {
		return nil, err
	}
	provider := &v1{
		Config:         config,
		conn:           conn,
		responsiveness: config.newResponsiveness(),
		plugin:         kmsv1.NewKeyManagementServiceClient(conn.ClientConn),
		cacheSize:      config.CacheSize,
	}
	if provider.cacheSize < 0 || provider.cacheSize > maxKeys {
		provider.cacheSize = maxKeys
	}
	if provider.cacheSize > 0 {
		if provider.keys, err = lru.New[string, *v1Cipher](provider.cacheSize); err != nil {
			return nil, err
		}
	}
	return provider, nil
}

// Close implements Provider.
func (p *v1) Close() { _ = p.conn.Close() } // closing loses nothing

// Check implements Provider.
func (p *v1) Check(ctx context.Context) error {
	return p.health.checkCached(ctx, p.Intervals, p.checkRoundTrip)
}

// Run implements Provider.
func (p *v1) Run(ctx context.Context) {
	pollStatus(ctx, p.Intervals, p.Check(ctx), func(ctx context.Context) error { return p.health.callNow(ctx, p.checkRoundTrip) })
}

// checkRoundTrip returns an error unless the plugin encrypts and decrypts a text.
func (p *v1) checkRoundTrip(ctx context.Context) error {
	const text = "ping"
	sealed, err := p.encryptKey(ctx, []byte(text))
	if err != nil {
		return &sectionError{"encrypt", p.Name, err}
	}
	decrypted, err := p.decryptKey(ctx, sealed)
	if err != nil {
		return &sectionError{"decrypt", p.Name, err}
	}
	if string(decrypted) != text {
		return fmt.Errorf("failed to decrypt: KMS Provider %s returned another value than was encrypted", p.Name)
	}
	return nil
}

// checkVersion checks once whether the plugin is of this version.
func (p *v1) checkVersion(ctx context.Context) error {
	p.version.mu.Lock()
	defer p.version.mu.Unlock()
	if p.version.ok {
		return nil
	}
	v, err := p.plugin.Version(ctx, &kmsv1.VersionRequest{Version: v1Version})
	if err = p.recordResult(err); err != nil {
		return fmt.Errorf("failed get version from remote KMS provider: %w", err)
	}
	if v.GetVersion() != v1Version {
		return fmt.Errorf("KMS provider api version %s is not supported, only %s is supported now", v.GetVersion(), v1Version)
	}
	p.version.ok = true
	return nil
}

// encryptKey returns a data key encrypted by the plugin.
func (p *v1) encryptKey(ctx context.Context, key []byte) ([]byte, error) {
	ctx, cancel := p.conn.withTimeout(ctx)
	defer cancel()
	if err := p.checkVersion(ctx); err != nil {
		return nil, err
	}
	response, err := p.plugin.Encrypt(ctx, &kmsv1.EncryptRequest{Version: v1Version, Plain: key})
	if err = p.recordResult(err); err != nil {
		return nil, err
	}
	if n := len(response.GetCipher()); n == 0 || n > maxSource {
		return nil, fmt.Errorf("KMS provider %s encrypted a key to %d bytes, want 1 to %d", p.Name, n, maxSource)
	}
	return response.GetCipher(), nil
}

// decryptKey returns a data key decrypted by the plugin.
func (p *v1) decryptKey(ctx context.Context, sealed []byte) ([]byte, error) {
	ctx, cancel := p.conn.withTimeout(ctx)
	defer cancel()
	if err := p.checkVersion(ctx); err != nil {
		return nil, err
	}
	response, err := p.plugin.Decrypt(ctx, &kmsv1.DecryptRequest{Version: v1Version, Cipher: sealed})
	if err = p.recordResult(err); err != nil {
		return nil, err
	}
	return response.GetPlain(), nil
}

// Seal implements Provider.
func (p *v1) Seal(ctx context.Context, dst, value []byte, key string) ([]byte, error) {
	dek := make([]byte, v1KeySize)
	if err := p.Metrics.generateKey(dek, rand.Read); err != nil {
		return nil, err
	}
	sealed, err := p.awaitEncryptedKey(ctx, dek)
	if err != nil {
		return nil, fmt.Errorf("failed to encrypt DEK, error: %w", err)
	}
	cipher, err := p.cacheCipher(sealed, dek)
	if err != nil {
		return nil, err
	}
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(sealed)))
	dst = append(dst, sealed...)
	return cipher.gcm.Seal(dst, value, []byte(key))
}

// awaitEncryptedKey is encryptKey for a waiting caller. It waits until the call ends: no other
// caller uses the result.
func (p *v1) awaitEncryptedKey(ctx context.Context, dek []byte) (sealed []byte, err error) {
	err = p.wait(ctx, func(ctx context.Context) error {
		var err error
		sealed, err = p.encryptKey(ctx, dek)
		return err
	})
	return sealed, err
}

// cacheCipher creates and caches the ciphers of a decrypted key.
func (p *v1) cacheCipher(sealed, dek []byte) (*v1Cipher, error) {
	gcm, err := ciphers.NewGCM(dek)
	if err != nil {
		return nil, err
	}
	cbc, err := ciphers.NewCBC(dek)
	if err != nil {
		return nil, err
	}
	cipher := &v1Cipher{gcm, cbc}
	if p.keys != nil {
		p.keys.Add(string(sealed), cipher)
		p.Metrics.cacheFill.Set(float64(p.keys.Len()) / float64(p.cacheSize))
	}
	return cipher, nil
}

// Open implements Provider.
func (p *v1) Open(ctx context.Context, sealed []byte, key string) ([]byte, bool, error) {
	if len(sealed) < v1LengthSize {
		return nil, false, errors.New("invalid data encountered by envelope transformer, length too short for the length of a key")
	}
	keyLength := int(binary.BigEndian.Uint16(sealed))
	sealed = sealed[v1LengthSize:]
	if keyLength == 0 || keyLength > len(sealed) {
		return nil, false, fmt.Errorf("invalid data encountered by envelope transformer, a key of %d bytes in %d", keyLength, len(sealed))
	}
	dek, sealed := sealed[:keyLength], sealed[keyLength:]
	cipher, err := p.cipherOf(ctx, dek)
	if err != nil {
		return nil, false, err
	}
	value, err := cipher.gcm.Open(sealed, []byte(key))
	if err == nil {
		return value, false, nil
	}
	// CBC may decrypt a modified value to garbage, but hardly to the beginning of an object.
	if legacy, legacyErr := cipher.cbc.Open(sealed, nil); legacyErr == nil &&
		(bytes.HasPrefix(legacy, []byte("k8s\x00")) || bytes.HasPrefix(legacy, []byte("{"))) {
		return legacy, true, nil
	}
	return nil, false, err
}

// cipherOf returns the cipher of an encrypted data key, from the cache or from the plugin.
func (p *v1) cipherOf(ctx context.Context, sealed []byte) (*v1Cipher, error) {
	if p.keys != nil {
		if cipher, ok := p.keys.Get(string(sealed)); ok {
			return cipher, nil
		}
	}
	p.Metrics.cacheMisses.Inc()
	if isImpatient(ctx) && p.isUnresponsive() {
		return nil, &UnavailableError{fmt.Errorf("error while decrypting key: KMS provider %s did not respond recently", p.Name)}
	}
	var cipher *v1Cipher
	var err error
	done := make(chan struct{})
	go func() { // ends with the call, which is bounded
		defer close(done)
		var dek []byte
		if dek, err = p.decryptKey(ctx, sealed); err == nil {
			cipher, err = p.cacheCipher(sealed, dek)
		}
		p.recordDecryption(err)
	}()
	if err := p.awaitCall(ctx, done); err != nil {
		return nil, &KeyError{string(sealed), fmt.Errorf("error while decrypting key: KMS provider %s: %w", p.Name, err)}
	}
	if err != nil {
		return nil, &KeyError{string(sealed), fmt.Errorf("error while decrypting key: %w", err)}
	}
	return cipher, nil
}
