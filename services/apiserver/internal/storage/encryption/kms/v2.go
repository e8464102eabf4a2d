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
	// proven: the key has decrypted a value, or encrypts new ones. Otherwise the plugin's response
	// may have been wrong.
	proven atomic.Bool
}

// rejection is why the plugin did not decrypt a key.
type rejection struct {
	err error
	at  time.Time
}

// seedState holds the current seed.
type seedState struct {
	envelope
	sum     envelopeHash
	seedKey *decryptedKey // decrypts values of this seed
	cipher  *ciphers.Derived
	keyHash string
	expires time.Time
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
	p := &v2{
		Config:         config,
		conn:           conn,
		responsiveness: config.newResponsiveness(),
		plugin:         kmsv2.NewKeyManagementServiceClient(conn.ClientConn),
	}
	if p.openKeys, err = lru.New[envelopeHash, *decryptedKey](maxKeys); err != nil {
		return nil, err
	}
	if p.rejected, err = lru.New[envelopeHash, rejection](maxRejected); err != nil {
		return nil, err
	}
	if err := p.health.callNow(ctx, p.readStatus); err != nil {
		p.Logger.Warn("KMS plugin is unhealthy; retrying", "provider", config.Name, "error", err)
	}
	return p, nil
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
	if word, err := checkKeyID(statusResponse.GetKeyId()); err != nil {
		p.Metrics.invalid.WithLabelValues(p.Name, word).Inc()
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
func (p *v2) useKey(ctx context.Context, id string) error {
	expires := time.Now().Add(p.Intervals.SeedLifetime) // counted from before the plugin is called
	current := p.state.Load()
	if current != nil && current.keyID == id {
		extended := *current
		extended.expires = expires
		p.state.Store(&extended)
		return nil
	}
	next, err := p.newSeed(ctx)
	switch {
	case err != nil:
	case next.keyID != id:
		err = fmt.Errorf("the status has key %q, but the response to an encryption has %q", Hash(id), Hash(next.keyID))
	default:
		next.expires = expires
		next.seedKey = p.cacheKey(next.sum, next.cipher)
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

// newSeed creates a random seed and has the plugin encrypt it.
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
	s := &seedState{envelope: envelope{
		keyID:       response.GetKeyId(),
		source:      slices.Clone(response.GetCiphertext()),
		sourceType:  typeSeed,
		annotations: annotationsOf(response.GetAnnotations()),
	}}
	if err := s.validate(); err != nil {
		return nil, fmt.Errorf("response to an encryption: %w", err)
	}
	s.sum, s.keyHash = s.envelope.hash(), Hash(s.keyID)
	s.cipher, err = ciphers.NewDerived(seed)
	return s, err
}

// Seal implements Provider.
func (p *v2) Seal(ctx context.Context, dst, value []byte, key string) (_ []byte, err error) {
	span := p.startSpan(ctx, "TransformToStorage with envelopeTransformer")
	defer func() {
		span.Fail(err)
		span.End()
	}()
	s := p.state.Load()
	if s == nil {
		return nil, errNoSeed
	}
	if now := time.Now(); now.After(s.expires) {
		return nil, fmt.Errorf("encryptedDEKSource with keyID hash %q expired at %s (current time is %s)",
			s.keyHash, s.expires.Format(time.RFC3339), now.Format(time.RFC3339))
	}
	span.Event("About to encrypt data using DEK")
	dst = appendHead(dst, len(value)+ciphers.DerivedOverhead)
	if dst, err = s.cipher.Seal(dst, value, []byte(key)); err != nil {
		span.Event("Data encryption failed")
		return nil, err
	}
	span.Event("Data encryption succeeded")
	p.Metrics.recordUse(ToStorage, p.Name, s.keyHash, Hash(p.ServerID))
	span.Event("About to encode encrypted object")
	dst = s.appendTo(dst)
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
	s := p.state.Load()
	if s == nil {
		return nil, false, &UnavailableError{errNoSeed}
	}
	span.Event("About to decode encrypted object")
	o, err := parseObject(sealed)
	if err != nil {
		span.Event("Decoding encrypted object failed")
		return nil, false, fmt.Errorf("stored value of KMS provider %s: %w", p.Name, err)
	}
	span.Event("Decoded encrypted object")
	c, err := p.cipherOf(ctx, s, &o.envelope, span)
	if err != nil {
		return nil, false, err
	}
	span.Event("About to decrypt data using DEK")
	if value, err = c.cipher.Open(o.data, []byte(key)); err != nil {
		if !c.proven.Load() {
			id := o.hash()
			err = &KeyError{string(id[:]), err}
		}
		span.Event("Data decryption failed")
		return nil, false, err
	}
	span.Event("Data decryption succeeded")
	if !c.proven.Load() {
		c.proven.Store(true)
	}
	hash := s.keyHash
	if o.keyID != s.keyID {
		hash = Hash(o.keyID)
	}
	p.Metrics.recordUse(FromStorage, p.Name, hash, Hash(p.ServerID))
	return value, o.keyID != s.keyID || o.sourceType != s.sourceType, nil
}

// cipherOf returns the key that decrypts values of an envelope: the current seed, a cached key, or
// one that the plugin decrypts.
func (p *v2) cipherOf(ctx context.Context, s *seedState, e *envelope, span tracing.Span) (*decryptedKey, error) {
	id := e.hash()
	if id == s.sum {
		return s.seedKey, nil
	}
	now := time.Now()
	if o, ok := p.openKeys.Get(id); ok && (o.proven.Load() || now.Sub(o.created) < p.Intervals.RefreshTimeout) {
		if now.UnixNano()-o.used.Swap(now.UnixNano()) < int64(maxUnused) {
			return o, nil
		}
	}
	span.Event("About to decrypt DEK using remote service")
	o, err := p.decryptKey(ctx, id, e, now)
	if err != nil {
		span.Event("DEK decryption failed")
		return nil, &KeyError{string(id[:]), err}
	}
	span.Event("DEK decryption succeeded")
	return o, nil
}

// decryptKey has the plugin decrypt a key once for all concurrent callers. Impatient callers use
// the known state of the plugin and of the key.
func (p *v2) decryptKey(ctx context.Context, id envelopeHash, e *envelope, now time.Time) (*decryptedKey, error) {
	if isImpatient(ctx) {
		if p.isUnresponsive() {
			return nil, &UnavailableError{fmt.Errorf("failed to decrypt DEK, error: KMS provider %s did not respond recently", p.Name)}
		}
		if r, ok := p.rejected.Get(id); ok && now.Sub(r.at) < p.Intervals.RefreshTimeout {
			return nil, r.err
		}
	}
	var created singleflight.Result
	result := p.flights.DoChan(string(id[:]), func() (any, error) {
		o, err := p.callDecrypt(ctx, id, e)
		if err != nil {
			p.rejected.Add(id, rejection{err, time.Now()})
		} else {
			p.rejected.Remove(id)
		}
		p.recordDecryption(err)
		return o, err
	})
	done := make(chan struct{})
	go func() { // ends with the call, which is bounded
		created = <-result
		close(done)
	}()
	if err := p.awaitCall(ctx, done); err != nil {
		return nil, fmt.Errorf("failed to decrypt DEK, error: KMS provider %s: %w", p.Name, err)
	}
	if created.Err != nil {
		return nil, created.Err
	}
	return created.Val.(*decryptedKey), nil
}

// cacheKey caches a decrypted key.
func (p *v2) cacheKey(id envelopeHash, c ciphers.Cipher) *decryptedKey {
	o := &decryptedKey{cipher: c, created: time.Now()}
	o.used.Store(time.Now().UnixNano())
	p.openKeys.Add(id, o)
	p.Metrics.sources.WithLabelValues(p.Name).Set(float64(p.openKeys.Len()))
	return o
}

// callDecrypt has the plugin decrypt a key, and caches it.
func (p *v2) callDecrypt(ctx context.Context, id envelopeHash, e *envelope) (*decryptedKey, error) {
	ctx, cancel := p.conn.withTimeout(ctx)
	defer cancel()
	response, err := p.plugin.Decrypt(ctx, &kmsv2.DecryptRequest{
		Ciphertext:  e.source,
		KeyId:       e.keyID,
		Annotations: e.annotationMap(),
		Uid:         uuid.NewString(),
	})
	if err = p.recordResult(err); err != nil {
		return nil, fmt.Errorf("failed to decrypt DEK, error: %w", err)
	}
	var c ciphers.Cipher
	if e.sourceType == typeSeed {
		c, err = ciphers.NewDerived(response.GetPlaintext())
	} else {
		c, err = ciphers.NewGCM(response.GetPlaintext())
	}
	if err != nil {
		return nil, fmt.Errorf("the key that KMS provider %s decrypted: %w", p.Name, err)
	}
	return p.cacheKey(id, c), nil
}
