package encryption

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"binnacle/services/apiserver/internal/storage/encryption/ciphers"
	"binnacle/services/apiserver/internal/storage/encryption/kms"
)

// sealedPrefix is the prefix of all encrypted values. No plain value starts with it.
const sealedPrefix = "k8s:enc:"

// Errors with the texts of Kubernetes.
var (
	errNoMatchingPrefix = errors.New("no matching prefix found")
	errSealed           = errors.New("identity transformer tried to read encrypted data")
	// errLooksSealed rejects a plain value with the prefix, which could not be read again.
	errLooksSealed = fmt.Errorf("a value that begins with %q cannot be stored as it is", sealedPrefix)
)

func isSealed(value []byte) bool { return bytes.HasPrefix(value, []byte(sealedPrefix)) }

// Transformer encrypts and decrypts the values of one provider, or of one of its keys.
type Transformer interface {
	// Seal appends the encrypted value to dst.
	Seal(ctx context.Context, dst, value []byte, valueContext ValueContext) ([]byte, error)
	// Open returns the value, and whether it would be encrypted differently today.
	Open(ctx context.Context, sealed []byte, valueContext ValueContext) (value []byte, stale bool, err error)
}

// ValueContext identifies a value: the key that it is stored under, to which it is bound, and its
// resource for metrics.
type ValueContext struct{ Key, Resource string }

// prefixedTransformer is a transformer of values that start with a prefix.
type prefixedTransformer struct {
	prefix      string
	transformer Transformer
}

// transformerChain encrypts with its first link and decrypts with the links whose prefix matches.
type transformerChain struct {
	links []prefixedTransformer
	// errNoMatch is the error if no prefix matches.
	errNoMatch error
	metrics    *Metrics
}

// Names in metrics of links without a prefix.
const (
	prefixIdentity = "identity"
	prefixUnknown  = "unknown"
)

// metricName returns the prefix as metrics show it.
func (l *prefixedTransformer) metricName() string {
	if l.prefix == "" {
		return prefixIdentity
	}
	return l.prefix
}

// Seal implements Transformer.
func (c *transformerChain) Seal(ctx context.Context, dst, value []byte, valueContext ValueContext) ([]byte, error) {
	start := time.Now()
	link := &c.links[0]
	out, err := link.transformer.Seal(ctx, append(dst, link.prefix...), value, valueContext)
	c.metrics.recordTransformation(valueContext.Resource, kms.ToStorage, link.metricName(), start, err)
	return out, err
}

// Open implements Transformer. A prefix may occur twice, because key names may.
func (c *transformerChain) Open(ctx context.Context, sealed []byte, valueContext ValueContext) ([]byte, bool, error) {
	start := time.Now()
	var failed []error
	for i := range c.links {
		link := &c.links[i]
		if !hasPrefix(sealed, link.prefix) || link.prefix == "" && isSealed(sealed) {
			continue
		}
		value, stale, err := link.transformer.Open(ctx, sealed[len(link.prefix):], valueContext)
		c.metrics.recordTransformation(valueContext.Resource, kms.FromStorage, link.metricName(), start, err)
		if err == nil {
			return value, stale || i > 0, nil
		}
		failed = append(failed, err)
	}
	if len(failed) > 0 {
		return nil, false, joinErrors(failed)
	}
	c.metrics.recordTransformation(valueContext.Resource, kms.FromStorage, prefixUnknown, start, c.errNoMatch)
	return nil, false, c.errNoMatch
}

func hasPrefix(b []byte, prefix string) bool {
	return len(b) >= len(prefix) && string(b[:len(prefix)]) == prefix
}

// joinErrors joins the errors of keys with the same name. It omits duplicate texts.
func joinErrors(errs []error) error {
	if len(errs) == 1 {
		return errs[0]
	}
	return &severalErrors{errs}
}

// severalErrors joins the errors of several providers. Its text has each message once.
type severalErrors struct{ errs []error }

// Unwrap returns the errors.
func (s *severalErrors) Unwrap() []error { return s.errs }

// Error implements error.
func (s *severalErrors) Error() string {
	var texts []string
	seen := map[string]bool{}
	for _, err := range s.errs {
		if text := err.Error(); !seen[text] {
			seen[text] = true
			texts = append(texts, text)
		}
	}
	if len(texts) == 1 {
		return texts[0]
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

// identityTransformer stores values unencrypted.
type identityTransformer struct{}

// Seal implements Transformer.
func (identityTransformer) Seal(_ context.Context, dst, value []byte, _ ValueContext) ([]byte, error) {
	if isSealed(value) {
		return nil, errLooksSealed
	}
	return append(dst, value...), nil
}

// Open implements Transformer.
func (identityTransformer) Open(_ context.Context, sealed []byte, _ ValueContext) ([]byte, bool, error) {
	if isSealed(sealed) {
		return nil, false, errSealed
	}
	return sealed, false, nil
}

// cipherTransformer adapts a cipher to Transformer.
type cipherTransformer struct{ ciphers.Cipher }

// Seal implements Transformer.
func (k cipherTransformer) Seal(_ context.Context, dst, value []byte, valueContext ValueContext) ([]byte, error) {
	return k.Cipher.Seal(dst, value, []byte(valueContext.Key))
}

// Open implements Transformer.
func (k cipherTransformer) Open(_ context.Context, sealed []byte, valueContext ValueContext) ([]byte, bool, error) {
	value, err := k.Cipher.Open(sealed, []byte(valueContext.Key))
	return value, false, err
}

// kmsTransformer adapts a KMS provider to Transformer.
type kmsTransformer struct{ kms.Provider }

// Seal implements Transformer.
func (p kmsTransformer) Seal(ctx context.Context, dst, value []byte, valueContext ValueContext) ([]byte, error) {
	return p.Provider.Seal(ctx, dst, value, valueContext.Key)
}

// Open implements Transformer.
func (p kmsTransformer) Open(ctx context.Context, sealed []byte, valueContext ValueContext) ([]byte, bool, error) {
	return p.Provider.Open(ctx, sealed, valueContext.Key)
}
