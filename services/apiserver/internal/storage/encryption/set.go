package encryption

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/storage/encryption/ciphers"
	"binnacle/services/apiserver/internal/storage/encryption/kms"
)

// Builder holds the dependencies of Sets.
type Builder struct {
	// KMSv1 allows plugins of version 1.
	KMSv1 bool
	// ServerID identifies this server in metrics.
	ServerID string
	// Intervals holds the intervals of plugin calls.
	Intervals kms.Intervals
	// HealthTimeout is the time for the plugins of a new configuration to become healthy; 0 means
	// 10 s.
	HealthTimeout time.Duration
	// Wait is how requests wait for plugins; see kms.Config.
	Wait    func(context.Context, func(context.Context) error) error
	Logger  *slog.Logger
	Metrics *Metrics
}

// Set is one active configuration.
type Set struct {
	chains map[schema.GroupResource]*transformerChain
	// decryptable identifies, for each rule, the keys that can decrypt its values.
	decryptable map[schema.GroupResource]map[string]bool
	plugins     []kms.Provider
	usesV1      bool // at least one plugin is of version 1
	stop        context.CancelFunc
	running     sync.WaitGroup
}

// errV1Gate has the text of Kubernetes.
var errV1Gate = errors.New("KMSv1 is deprecated and will only receive security updates going forward. Use KMSv2 instead.  Set --feature-gates=KMSv1=true to use the deprecated KMSv1 feature.")

// Build creates a Set from a configuration. It has called each plugin once, but they need not have
// responded. recovered is called when a plugin becomes healthy.
func (b *Builder) Build(ctx context.Context, c *Configuration, recovered func()) (*Set, error) {
	s := &Set{chains: map[schema.GroupResource]*transformerChain{}, decryptable: map[schema.GroupResource]map[string]bool{}}
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	if err := b.addChains(ctx, s, c, recovered); err != nil {
		s.Close()
		return nil, fmt.Errorf("error while building transformers: %w", err)
	}
	for _, p := range s.plugins {
		s.running.Go(func() { p.Run(ctx) })
	}
	return s, nil
}

// addChains adds the chains of a configuration to a set.
func (b *Builder) addChains(ctx context.Context, set *Set, configuration *Configuration, recovered func()) error {
	for i := range configuration.Resources {
		rule := &configuration.Resources[i]
		var links []prefixedTransformer
		var keyIDs []string
		for j := range rule.Providers {
			link, names, err := b.newLink(ctx, set, &rule.Providers[j], recovered)
			if err != nil {
				return err
			}
			links = append(links, link)
			keyIDs = append(keyIDs, names...)
		}
		for _, name := range rule.Resources {
			groupResource := schema.ParseGroupResource(name)
			for _, widerRule := range []schema.GroupResource{{Group: groupResource.Group, Resource: "*"}, {Group: "*", Resource: "*"}} {
				if set.chains[widerRule] != nil {
					return fmt.Errorf("resource %q is masked by earlier rule %q", resourceName(groupResource), resourceName(widerRule))
				}
			}
			if set.chains[groupResource] == nil {
				set.chains[groupResource], set.decryptable[groupResource] = &transformerChain{errNoMatch: errNoMatchingPrefix, metrics: b.Metrics}, map[string]bool{}
			}
			set.chains[groupResource].links = append(set.chains[groupResource].links, links...)
			for _, o := range keyIDs {
				set.decryptable[groupResource][o] = true
			}
		}
	}
	return nil
}

// resourceName returns a resource as it is written in the configuration file.
func resourceName(gr schema.GroupResource) string {
	if gr.Group == "" && gr.Resource == "*" {
		return "*."
	}
	return gr.String()
}

// newLink creates a provider. It also returns the identities of its keys.
func (b *Builder) newLink(
	ctx context.Context,
	set *Set,
	configuration *ProviderConfiguration,
	recovered func(),
) (prefixedTransformer, []string, error) {
	const (
		aes = "no matching key was found for the provided AES transformer"
		box = "no matching key was found for the provided Secretbox transformer"
	)
	switch {
	case configuration.AESCBC != nil:
		return b.newKeysLink("k8s:enc:aescbc:v1:", aes,
			configuration.AESCBC.Keys, func(k []byte) (ciphers.Cipher, error) { return ciphers.NewCBC(k) })
	case configuration.AESGCM != nil:
		return b.newKeysLink("k8s:enc:aesgcm:v1:", aes,
			configuration.AESGCM.Keys, func(k []byte) (ciphers.Cipher, error) { return ciphers.NewGCM(k) })
	case configuration.Secretbox != nil:
		return b.newKeysLink("k8s:enc:secretbox:v1:", box, configuration.Secretbox.Keys, func(k []byte) (ciphers.Cipher, error) {
			return ciphers.NewSecretbox(k)
		})
	case configuration.KMS != nil:
		return b.newKMSLink(ctx, set, configuration.KMS, recovered)
	}
	return prefixedTransformer{transformer: identityTransformer{}}, []string{prefixIdentity}, nil
}

// newKeysLink creates a provider with several keys, each with its own prefix. It also returns the
// identities of the keys.
func (b *Builder) newKeysLink(
	prefix, noMatchText string,
	keys []Key,
	newCipher func([]byte) (ciphers.Cipher, error),
) (prefixedTransformer, []string, error) {
	chain := &transformerChain{errNoMatch: errors.New(noMatchText), metrics: b.Metrics}
	var keyIDs []string
	for i := range keys {
		secret, err := base64.StdEncoding.DecodeString(keys[i].Secret)
		if err != nil {
			return prefixedTransformer{}, nil, fmt.Errorf("could not obtain secret for named key %s: %w", keys[i].Name, err)
		}
		cipher, err := newCipher(secret)
		if err != nil {
			return prefixedTransformer{}, nil, fmt.Errorf("key %s: %w", keys[i].Name, err)
		}
		chain.links = append(chain.links, prefixedTransformer{prefix: keys[i].Name + ":", transformer: cipherTransformer{cipher}})
		keyIDs = append(keyIDs, fmt.Sprintf("%s%s %x", prefix, keys[i].Name, sha256.Sum256(secret)))
	}
	return prefixedTransformer{prefix: prefix, transformer: chain}, keyIDs, nil
}

// newKMSLink returns the link of a KMS provider, and the prefixes of the values that it decrypts.
func (b *Builder) newKMSLink(
	ctx context.Context,
	set *Set,
	kmsConfiguration *KMSConfiguration,
	recovered func(),
) (prefixedTransformer, []string, error) {
	config := kms.Config{
		Name:      kmsConfiguration.Name,
		Endpoint:  kmsConfiguration.Endpoint,
		Timeout:   kmsConfiguration.Timeout.Duration,
		ServerID:  b.ServerID,
		Intervals: b.Intervals,
		Logger:    b.Logger,
		Metrics:   b.Metrics.kms,
		Wait:      b.Wait,
		Recovered: recovered,
	}
	var provider kms.Provider
	var err error
	version := kmsV2
	if kmsConfiguration.APIVersion == kmsV1 {
		if !b.KMSv1 {
			return prefixedTransformer{}, nil, errV1Gate
		}
		b.Logger.Warn("KMSv1 is deprecated and will only receive security updates going forward. Use KMSv2 instead.",
			"provider", kmsConfiguration.Name)
		set.usesV1 = true
		version = kmsV1
		config.CacheSize = int(*kmsConfiguration.CacheSize)
		provider, err = kms.NewV1(config)
	} else {
		provider, err = kms.NewV2(ctx, config)
	}
	if err != nil {
		return prefixedTransformer{}, nil, fmt.Errorf("could not configure KMS plugin %q, error: %w", kmsConfiguration.Name, err)
	}
	set.plugins = append(set.plugins, provider)
	prefix := "k8s:enc:kms:" + version + ":" + kmsConfiguration.Name + ":"
	return prefixedTransformer{prefix: prefix, transformer: kmsTransformer{provider}}, []string{prefix}, nil
}

// forResource returns the chain of a resource, or nil if its values are not encrypted.
func (s *Set) forResource(gr schema.GroupResource) *transformerChain {
	if s == nil {
		return nil
	}
	return s.chains[s.ruleFor(gr)]
}

// ruleFor returns the most specific rule for a resource or for another rule.
func (s *Set) ruleFor(gr schema.GroupResource) schema.GroupResource {
	for _, r := range []schema.GroupResource{gr, {Group: gr.Group, Resource: "*"}} {
		if s.chains[r] != nil {
			return r
		}
	}
	return schema.GroupResource{Group: "*", Resource: "*"}
}

// canDecryptAll reports whether this Set can decrypt everything that another one can. The most
// specific rule decides how a value is decrypted, so rules of both Sets are compared.
func (s *Set) canDecryptAll(other *Set) bool {
	for _, rules := range []map[schema.GroupResource]map[string]bool{s.decryptable, other.decryptable} {
		for groupResource := range rules {
			ownKeys := s.decryptable[s.ruleFor(groupResource)]
			for keyID := range other.decryptable[other.ruleFor(groupResource)] {
				if !ownKeys[keyID] {
					return false
				}
			}
			if other.chains[other.ruleFor(groupResource)] == nil && !ownKeys[prefixIdentity] {
				return false // its values may be plain
			}
		}
	}
	return true
}

// SharedHealthCheck reports whether the plugins share one health check, as in Kubernetes if all are
// of version 2.
func (s *Set) SharedHealthCheck() bool { return len(s.plugins) > 0 && !s.usesV1 }

// Plugins returns the number of plugins.
func (s *Set) Plugins() int { return len(s.plugins) }

// Check returns an error if a plugin is not healthy.
func (s *Set) Check(ctx context.Context, plugin int) error { return s.plugins[plugin].Check(ctx) }

// checkAll returns the errors of all plugins.
func (s *Set) checkAll(r *http.Request) error {
	var errs []error
	for i, p := range s.plugins {
		if err := p.Check(r.Context()); err != nil {
			errs = append(errs, fmt.Errorf("kms-provider-%d: %w", i, err))
		}
	}
	if len(errs) > 0 {
		return joinErrors(errs)
	}
	return nil
}

// waitHealthy waits until all plugins are healthy, or ctx ends.
func (s *Set) waitHealthy(ctx context.Context) error {
	for _, p := range s.plugins {
		for {
			err := p.Check(ctx)
			if err == nil {
				break
			}
			select {
			case <-ctx.Done():
				return &unhealthyError{err}
			case <-time.After(healthRetry):
			}
		}
	}
	return nil
}

// unhealthyError means that a plugin of a new configuration is not healthy, possibly temporarily.
type unhealthyError struct{ err error }

func (e *unhealthyError) Error() string {
	return "the new configuration is not applied: " + e.err.Error()
}
func (e *unhealthyError) Unwrap() error { return e.err }

// healthRetry is the interval of checks of an unhealthy plugin.
const healthRetry = 250 * time.Millisecond

// Close stops the goroutines and closes the connections.
func (s *Set) Close() {
	s.stop()
	s.running.Wait()
	for _, p := range s.plugins {
		p.Close()
	}
}

// Resources derives the resource of a value from its key.
type Resources struct {
	root    string
	builtIn map[string]schema.GroupResource // by the part between the root and the object
}

// NewResources takes the root of all keys, which ends with a slash, and the key prefixes of the
// built-in resources.
func NewResources(root string, builtIn map[string]schema.GroupResource) *Resources {
	r := &Resources{root: root, builtIn: map[string]schema.GroupResource{}}
	for prefix, gr := range builtIn {
		r.builtIn[strings.TrimPrefix(prefix, root)] = gr
	}
	return r
}

// ForKey returns the resource of a key, and false for keys of no resource. Custom resources are
// stored below their group, which contains a dot. Below the root "/registry/":
//
//	/registry/pods/ns/a               -> pods, if builtIn contains "pods/"
//	/registry/services/specs/ns/a     -> services, if builtIn contains "services/specs/"
//	/registry/example.com/things/ns/a -> things.example.com
func (r *Resources) ForKey(key string) (schema.GroupResource, bool) {
	path, ok := strings.CutPrefix(key, r.root)
	if !ok {
		return schema.GroupResource{}, false
	}
	firstEnd := strings.IndexByte(path, '/') + 1
	if firstEnd == 0 {
		return schema.GroupResource{}, false
	}
	if gr, ok := r.builtIn[path[:firstEnd]]; ok {
		return gr, true
	}
	secondLength := strings.IndexByte(path[firstEnd:], '/')
	if secondLength <= 0 {
		return schema.GroupResource{}, false
	}
	if gr, ok := r.builtIn[path[:firstEnd+secondLength+1]]; ok {
		return gr, true
	}
	group := path[:firstEnd-1]
	return schema.GroupResource{Group: group, Resource: path[firstEnd : firstEnd+secondLength]}, strings.IndexByte(group, '.') > 0
}
