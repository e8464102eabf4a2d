package externaljwt

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	pb "k8s.io/externaljwt/apis/v1alpha1"

	"binnacle/libs/satoken"
)

// keySet is the last set of keys that the signer returned.
type keySet struct {
	keys []satoken.PublicKey
	// dataTime is when the signer determined the keys. refreshTime is when to fetch them again.
	dataTime, refreshTime time.Time
}

// Keys returns all keys that verify tokens.
func (s *Signer) Keys() []satoken.PublicKey { return s.keys.Load().keys }

// MaxAge returns how long the keys remain valid according to the signer.
func (s *Signer) MaxAge() time.Duration { return max(time.Until(s.keys.Load().refreshTime), 0) }

// Candidates returns the keys with an id, or all keys if the id is empty. It fetches the keys if
// the id is unknown.
func (s *Signer) Candidates(ctx context.Context, id string) []satoken.PublicKey {
	if id == "" {
		return s.Keys()
	}
	if keys := s.keysByID(id); len(keys) > 0 {
		return keys
	}
	if err := s.fetchKeys(ctx); err != nil {
		s.Logger.Warn("failed to fetch the keys of the external token signer", "socket", s.Socket, "error", err)
		return nil
	}
	return s.keysByID(id)
}

// keysByID returns the keys with an id.
func (s *Signer) keysByID(id string) (out []satoken.PublicKey) {
	for _, k := range s.Keys() {
		if k.ID == id {
			out = append(out, k)
		}
	}
	return out
}

// Run fetches the keys when the signer requests it, until ctx ends.
func (s *Signer) Run(ctx context.Context) error {
	timer := time.NewTimer(s.MaxAge())
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		if err := s.fetchKeys(ctx); err != nil {
			if ctx.Err() == nil {
				s.Logger.Warn("failed to fetch the keys of the external token signer; keeping the previous ones",
					"socket", s.Socket, "error", err)
			}
			timer.Reset(fetchRetryDelay)
			continue
		}
		timer.Reset(s.MaxAge())
	}
}

// fetchKeys fetches the keys. Concurrent callers share one fetch, which continues when a caller's
// ctx ends.
func (s *Signer) fetchKeys(ctx context.Context) error {
	done := s.fetches.DoChan("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
		defer cancel()
		fetched, err := s.requestKeys(ctx)
		s.Metrics.recordFetch(err)
		if err != nil {
			return nil, fmt.Errorf("while fetching token verification keys: %w", err)
		}
		previous := s.keys.Swap(fetched)
		s.Metrics.recordDataTime(fetched.dataTime)
		if fetched.changedFrom(previous) {
			s.onChange()
		}
		return nil, nil
	})
	select {
	case r := <-done:
		return r.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// changedFrom reports whether two sets differ in their time or their keys. Keys with equal ids are
// equal.
func (s *keySet) changedFrom(other *keySet) bool {
	return !s.dataTime.Equal(other.dataTime) || !slices.EqualFunc(s.keys, other.keys, func(a, b satoken.PublicKey) bool {
		return a.ID == b.ID && a.Undiscoverable == b.Undiscoverable
	})
}

// requestKeys calls the signer and validates its response.
func (s *Signer) requestKeys(ctx context.Context) (*keySet, error) {
	response, err := s.client.FetchKeys(ctx, &pb.FetchKeysRequest{})
	if err != nil {
		return nil, fmt.Errorf("while getting externally supported jwt signing keys: %w", err)
	}
	if response.GetRefreshHintSeconds() <= 0 {
		return nil, fmt.Errorf("found invalid refresh hint (%ds)", response.GetRefreshHintSeconds())
	}
	if len(response.GetKeys()) == 0 {
		return nil, errors.New("found no keys")
	}
	if err := response.GetDataTimestamp().CheckValid(); err != nil {
		return nil, fmt.Errorf("invalid data timestamp: %w", err)
	}
	refreshAfter := time.Duration(min(response.GetRefreshHintSeconds(), satoken.MaxLifetimeSeconds)) * time.Second
	set := &keySet{dataTime: response.GetDataTimestamp().AsTime(), refreshTime: time.Now().Add(refreshAfter)}
	for _, k := range response.GetKeys() {
		public, err := decodeKey(k)
		if err != nil {
			return nil, err
		}
		set.keys = append(set.keys, public)
	}
	return set, nil
}

// decodeKey decodes a key of the signer.
func decodeKey(signerKey *pb.Key) (satoken.PublicKey, error) {
	switch {
	case signerKey == nil:
		return satoken.PublicKey{}, errors.New("found nil public key")
	case signerKey.GetKeyId() == "", len(signerKey.GetKeyId()) > maxKeyID:
		return satoken.PublicKey{}, fmt.Errorf("found invalid public key id %q", signerKey.GetKeyId())
	case len(signerKey.GetKey()) == 0:
		return satoken.PublicKey{}, errors.New("found empty public key")
	}
	key, err := x509.ParsePKIXPublicKey(signerKey.GetKey())
	if err != nil {
		return satoken.PublicKey{}, fmt.Errorf("while parsing external public keys: %w", err)
	}
	public, err := satoken.NewPublicKey(key)
	if err != nil {
		return satoken.PublicKey{}, fmt.Errorf("while parsing external public keys: %w", err)
	}
	public.ID, public.Undiscoverable = signerKey.GetKeyId(), signerKey.GetExcludeFromOidcDiscovery()
	return public, nil
}
