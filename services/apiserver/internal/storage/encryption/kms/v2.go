package kms

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"
	"go.opentelemetry.io/otel/attribute"
	"golang.org/x/sync/singleflight"
	kmsv2 "k8s.io/kms/apis/v2"

	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/storage/encryption/ciphers"
)

const (
	// maxKeys bounds the cached decrypted keys. Each server start creates one, and each change of
	// the plugin's key another.
	maxKeys = 10_000
	// maxRejected bounds the keys remembered as rejected.
	maxRejected = 1_000
	// maxUnused is how long an unused decrypted key is cached.
	maxUnused = time.Hour

	apiVersion     = "v2"
	apiVersionBeta = "v2beta1"
	statusHealthy  = "ok"
)

// v2 is a Provider of version 2.
type v2 struct {
	Config
	conn   *connection
	plugin kmsv2.KeyManagementServiceClient
	health healthCache
	// state is nil until the plugin has encrypted a seed.
	state    atomic.Pointer[seedState]
	openKeys *lru.Cache[envelopeHash, *decryptedKey]
	rejected *lru.Cache[envelopeHash, rejection]
	flights  singleflight.Group
	responsiveness
}

// envelopeHash is the hash of an encrypted key, which identifies it in the cache.
type envelopeHash = [sha256.Size]byte

// decryptedKey is a cached decrypted key.
type decryptedKey struct {
	cipher  ciphers.Cipher
	created time.Time
	used    atomic.Int64 // Unix nanoseconds
	// proven means that the key has decrypted a value, or encrypts new ones. Otherwise the plugin's
	// response may have been wrong.
	proven atomic.Bool
}

// rejection is why the plugin did not decrypt a key.
type rejection struct {
	err        error
	rejectedAt time.Time
}

// seedState holds the current seed.
type seedState struct {
	envelope
	envelopeID envelopeHash
	seedKey    *decryptedKey // decrypts values of this seed
	cipher     *ciphers.Derived
	keyHash    string
	expires    time.Time
}

var errNoSeed = errors.New("got unexpected nil transformer")

// NewV2 connects to a plugin of version 2 and requests its first key, at most for the duration of a
// call. Run retries a plugin that does not respond.
func NewV2(ctx context.Context, config Config) (Provider, error) {
	config.Intervals = config.Intervals.withDefaults()
	conn, err := newConnection(&config)
	if err != nil {
		return nil, err
	}
	provider := &v2{
		Config:         config,
		conn:           conn,
		responsiveness: config.newResponsiveness(),
		plugin:         kmsv2.NewKeyManagementServiceClient(conn.ClientConn),
	}
	if provider.openKeys, err = lru.New[envelopeHash, *decryptedKey](maxKeys); err != nil {
		return nil, err
	}
	if provider.rejected, err = lru.New[envelopeHash, rejection](maxRejected); err != nil {
		return nil, err
	}
	if err := provider.health.callNow(ctx, provider.readStatus); err != nil {
		provider.Logger.Warn("KMS plugin is unhealthy; retrying", "provider", config.Name, "error", err)
	}
	return provider, nil
}

// Close implements Provider.
func (p *v2) Close() { _ = p.conn.Close() } // closing loses nothing

// Check implements Provider.
func (p *v2) Check(ctx context.Context) error {
	return p.health.checkCached(ctx, p.Intervals, p.readStatus)
}

// Run implements Provider.
func (p *v2) Run(ctx context.Context) {
	pollStatus(ctx, p.Intervals, p.Check(ctx), func(ctx context.Context) error { return p.health.callNow(ctx, p.readStatus) })
}

// readStatus reads the health and the current key of the plugin.
func (p *v2) readStatus(ctx context.Context) error {
	ctx, cancel := p.conn.withTimeout(ctx)
	defer cancel()
	statusResponse, err := p.plugin.Status(ctx, &kmsv2.StatusRequest{})
	if err = p.recordResult(err); err != nil {
		return &sectionError{"status", p.Name, err}
	}
	var errs []error
	if statusResponse.GetHealthz() != statusHealthy {
		errs = append(errs, fmt.Errorf("got unexpected healthz status: %s", statusResponse.GetHealthz()))
	}
	if v := statusResponse.GetVersion(); v != apiVersion && v != apiVersionBeta {
		errs = append(errs, fmt.Errorf("expected KMSv2 API version %s, got %s", apiVersion, v))
	}
	if label, err := checkKeyID(statusResponse.GetKeyId()); err != nil {
		p.Metrics.invalidKeyIDs.WithLabelValues(p.Name, label).Inc()
		errs = append(errs, fmt.Errorf("got invalid KMSv2 KeyID hash %q: %w", Hash(statusResponse.GetKeyId()), err))
	} else {
		p.Metrics.recordStatusKey(p.Name, Hash(statusResponse.GetKeyId()), Hash(p.ServerID))
		if err := p.useKey(ctx, statusResponse.GetKeyId()); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("kmsv2 Provider %s is not healthy, error: %w", p.Name, joinErrors(errs))
	}
	return nil
}

// joinErrors joins errors in one line.
func joinErrors(errs []error) error {
	if len(errs) == 1 {
		return errs[0]
	}
	text := ""
	for i, err := range errs {
		if i > 0 {
			text += ", "
		}
		text += err.Error()
	}
	return fmt.Errorf("[%s]", text)
}

// useKey extends the current seed if the plugin's key is unchanged, and otherwise starts a new one.
func (p *v2) useKey(ctx context.Context, keyID string) error {
	expires := time.Now().Add(p.Intervals.SeedLifetime) // counted from before the plugin is called
	current := p.state.Load()
	if current != nil && current.keyID == keyID {
		extended := *current
		extended.expires = expires
		p.state.Store(&extended)
		return nil
	}
	next, err := p.newSeed(ctx)
	switch {
	case err != nil:
	case next.keyID != keyID:
		err = fmt.Errorf("the status has key %q, but the response to an encryption has %q", Hash(keyID), Hash(next.keyID))
	default:
		next.expires = expires
		next.seedKey = p.cacheKey(next.envelopeID, next.cipher)
		next.seedKey.proven.Store(true)
		p.state.Store(next)
		p.Logger.Info("KMS plugin uses a new key", "provider", p.Name, "key", next.keyHash)
		if current == nil {
			p.Recovered()
		}
		return nil
	}
	return fmt.Errorf("failed to rotate DEK of KMS provider %s: %w", p.Name, err)
}

// newSeed creates a random seed, encrypted by the plugin.
func (p *v2) newSeed(ctx context.Context) (*seedState, error) {
	seed := make([]byte, ciphers.MinSeed)
	if err := p.Metrics.generateKey(seed, rand.Read); err != nil {
		return nil, err
	}
	response, err := p.plugin.Encrypt(ctx, &kmsv2.EncryptRequest{Plaintext: seed, Uid: uuid.NewString()})
	if err = p.recordResult(err); err != nil {
		return nil, fmt.Errorf("failed to encrypt DEK, error: %w", err)
	}
	if bytes.Equal(response.GetCiphertext(), seed) {
		return nil, errors.New("the plugin returned the plaintext from an encryption")
	}
	next := &seedState{envelope: envelope{
		keyID:       response.GetKeyId(),
		source:      slices.Clone(response.GetCiphertext()),
		sourceType:  typeSeed,
		annotations: annotationsOf(response.GetAnnotations()),
	}}
	if err := next.validate(); err != nil {
		return nil, fmt.Errorf("response to an encryption: %w", err)
	}
	next.envelopeID, next.keyHash = next.envelope.hash(), Hash(next.keyID)
	next.cipher, err = ciphers.NewDerived(seed)
	return next, err
}

// Seal implements Provider.
func (p *v2) Seal(ctx context.Context, dst, value []byte, key string) (_ []byte, err error) {
	span := p.startSpan(ctx, "TransformToStorage with envelopeTransformer")
	defer func() {
		span.Fail(err)
		span.End()
	}()
	state := p.state.Load()
	if state == nil {
		return nil, errNoSeed
	}
	if now := time.Now(); now.After(state.expires) {
		return nil, fmt.Errorf("encryptedDEKSource with keyID hash %q expired at %s (current time is %s)",
			state.keyHash, state.expires.Format(time.RFC3339), now.Format(time.RFC3339))
	}
	span.Event("About to encrypt data using DEK")
	dst = appendHead(dst, len(value)+ciphers.DerivedOverhead)
	if dst, err = state.cipher.Seal(dst, value, []byte(key)); err != nil {
		span.Event("Data encryption failed")
		return nil, err
	}
	span.Event("Data encryption succeeded")
	p.Metrics.recordUse(ToStorage, p.Name, state.keyHash, Hash(p.ServerID))
	span.Event("About to encode encrypted object")
	dst = state.appendTo(dst)
	span.Event("Encoded encrypted object")
	return dst, nil
}

// startSpan starts a span below the span of ctx.
func (p *v2) startSpan(ctx context.Context, name string) tracing.Span {
	_, span := tracing.Start(ctx, name, func() []attribute.KeyValue {
		return []attribute.KeyValue{attribute.String("transformer.provider.name", p.Name)}
	})
	return span
}

// Open implements Provider.
func (p *v2) Open(ctx context.Context, sealed []byte, key string) (value []byte, stale bool, err error) {
	span := p.startSpan(ctx, "TransformFromStorage with envelopeTransformer")
	defer func() {
		span.Fail(err)
		span.End()
	}()
	state := p.state.Load()
	if state == nil {
		return nil, false, &UnavailableError{errNoSeed}
	}
	span.Event("About to decode encrypted object")
	stored, err := parseObject(sealed)
	if err != nil {
		span.Event("Decoding encrypted object failed")
		return nil, false, fmt.Errorf("stored value of KMS provider %s: %w", p.Name, err)
	}
	span.Event("Decoded encrypted object")
	decrypted, err := p.cipherOf(ctx, state, &stored.envelope, span)
	if err != nil {
		return nil, false, err
	}
	span.Event("About to decrypt data using DEK")
	if value, err = decrypted.cipher.Open(stored.data, []byte(key)); err != nil {
		if !decrypted.proven.Load() {
			id := stored.hash()
			err = &KeyError{string(id[:]), err}
		}
		span.Event("Data decryption failed")
		return nil, false, err
	}
	span.Event("Data decryption succeeded")
	if !decrypted.proven.Load() {
		decrypted.proven.Store(true)
	}
	hash := state.keyHash
	if stored.keyID != state.keyID {
		hash = Hash(stored.keyID)
	}
	p.Metrics.recordUse(FromStorage, p.Name, hash, Hash(p.ServerID))
	return value, stored.keyID != state.keyID || stored.sourceType != state.sourceType, nil
}

// cipherOf returns the key that decrypts values of an envelope: the current seed, a cached key, or
// one that the plugin decrypts.
func (p *v2) cipherOf(ctx context.Context, state *seedState, keyEnvelope *envelope, span tracing.Span) (*decryptedKey, error) {
	hash := keyEnvelope.hash()
	if hash == state.envelopeID {
		return state.seedKey, nil
	}
	now := time.Now()
	if cached, ok := p.openKeys.Get(hash); ok && (cached.proven.Load() || now.Sub(cached.created) < p.Intervals.RefreshTimeout) {
		if now.UnixNano()-cached.used.Swap(now.UnixNano()) < int64(maxUnused) {
			return cached, nil
		}
	}
	span.Event("About to decrypt DEK using remote service")
	cached, err := p.decryptKey(ctx, hash, keyEnvelope, now)
	if err != nil {
		span.Event("DEK decryption failed")
		return nil, &KeyError{string(hash[:]), err}
	}
	span.Event("DEK decryption succeeded")
	return cached, nil
}

// decryptKey calls the plugin once for all concurrent callers to decrypt a key. Impatient callers use
// the known state of the plugin and of the key.
func (p *v2) decryptKey(ctx context.Context, keyHash envelopeHash, keyEnvelope *envelope, now time.Time) (*decryptedKey, error) {
	if isImpatient(ctx) {
		if p.isUnresponsive() {
			return nil, &UnavailableError{fmt.Errorf("failed to decrypt DEK, error: KMS provider %s did not respond recently", p.Name)}
		}
		if r, ok := p.rejected.Get(keyHash); ok && now.Sub(r.rejectedAt) < p.Intervals.RefreshTimeout {
			return nil, r.err
		}
	}
	var flight singleflight.Result
	result := p.flights.DoChan(string(keyHash[:]), func() (any, error) {
		o, err := p.callDecrypt(ctx, keyHash, keyEnvelope)
		if err != nil {
			p.rejected.Add(keyHash, rejection{err, time.Now()})
		} else {
			p.rejected.Remove(keyHash)
		}
		p.recordDecryption(err)
		return o, err
	})
	done := make(chan struct{})
	go func() { // ends with the call, which is bounded
		flight = <-result
		close(done)
	}()
	if err := p.awaitCall(ctx, done); err != nil {
		return nil, fmt.Errorf("failed to decrypt DEK, error: KMS provider %s: %w", p.Name, err)
	}
	if flight.Err != nil {
		return nil, flight.Err
	}
	return flight.Val.(*decryptedKey), nil
}

// cacheKey caches a decrypted key.
func (p *v2) cacheKey(id envelopeHash, c ciphers.Cipher) *decryptedKey {
	key := &decryptedKey{cipher: c, created: time.Now()}
	key.used.Store(time.Now().UnixNano())
	p.openKeys.Add(id, key)
	p.Metrics.cacheSize.WithLabelValues(p.Name).Set(float64(p.openKeys.Len()))
	return key
}

// callDecrypt calls the plugin to decrypt a key, and caches it.
func (p *v2) callDecrypt(ctx context.Context, id envelopeHash, keyEnvelope *envelope) (*decryptedKey, error) {
	ctx, cancel := p.conn.withTimeout(ctx)
	defer cancel()
	response, err := p.plugin.Decrypt(ctx, &kmsv2.DecryptRequest{
		Ciphertext:  keyEnvelope.source,
		KeyId:       keyEnvelope.keyID,
		Annotations: keyEnvelope.annotationMap(),
		Uid:         uuid.NewString(),
	})
	if err = p.recordResult(err); err != nil {
		return nil, fmt.Errorf("failed to decrypt DEK, error: %w", err)
	}
	var cipher ciphers.Cipher
	if keyEnvelope.sourceType == typeSeed {
		cipher, err = ciphers.NewDerived(response.GetPlaintext())
	} else {
		cipher, err = ciphers.NewGCM(response.GetPlaintext())
	}
	if err != nil {
		return nil, fmt.Errorf("the key that KMS provider %s decrypted: %w", p.Name, err)
	}
	return p.cacheKey(id, cipher), nil
}
