package memstore

import (
	"bytes"
	"context"
	"strings"
	"time"

	"binnacle/services/apiserver/internal/storage"
)

// Create implements storage.Interface.
func (s *Store) Create(ctx context.Context, key string, value []byte, opts storage.WriteOptions) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	current, _ := s.keys.Get(key)
	switch {
	case len(key)+len(value) > maxRequestBytes:
		return 0, storage.ErrTooLarge
	case current.isLive():
		return 0, &storage.ExistsError{Key: key}
	case !s.preconditionsHold(opts.Preconditions):
		return 0, &storage.PreconditionError{Key: key}
	}
	return s.putValue(storage.Created, key, value, 0, opts.TTL), nil
}

// Update implements storage.Interface.
func (s *Store) Update(ctx context.Context, key string, value []byte, expected int64, opts storage.WriteOptions) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(key)+len(value) > maxRequestBytes {
		return 0, storage.ErrTooLarge
	}
	current, err := s.liveVersion(key, expected, opts.Preconditions)
	if err != nil {
		return 0, err
	}
	return s.putValue(storage.Updated, key, value, current.CreateRevision, opts.TTL), nil
}

// Delete implements storage.Interface.
func (s *Store) Delete(ctx context.Context, key string, expected int64, preconditions ...storage.Precondition) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.liveVersion(key, expected, preconditions); err != nil {
		return 0, err
	}
	return s.removeKey(key), nil
}

// liveVersion returns the value of a key if it has the expected revision and the preconditions
// hold.
func (s *Store) liveVersion(key string, expected int64, preconditions []storage.Precondition) (*version, error) {
	current, _ := s.keys.Get(key)
	switch {
	case !current.isLive():
		return nil, storage.ErrNotFound
	case current.Revision != expected:
		return nil, &storage.ConflictError{Live: current.keyValue()}
	case !s.preconditionsHold(preconditions):
		return nil, &storage.PreconditionError{Key: key}
	}
	return current, nil
}

// preconditionsHold reports whether all preconditions are true now.
func (s *Store) preconditionsHold(preconditions []storage.Precondition) bool {
	for _, precondition := range preconditions {
		var found bool
		holds := true
		s.keys.Ascend(precondition.Key, func(key string, v *version) bool {
			if key != precondition.Key && !(precondition.Prefix && strings.HasPrefix(key, precondition.Key)) {
				return false
			}
			if v.isLive() {
				found = true
				holds = v.CreateRevision == precondition.CreateRevision
			}
			return holds
		})
		if !holds || !found && precondition.CreateRevision != 0 {
			return false
		}
	}
	return true
}

// putValue writes a copy of a value and returns the revision of the write. created is the create
// revision, or 0 if this write creates the key.
func (s *Store) putValue(change storage.EventType, key string, value []byte, created int64, ttl time.Duration) int64 {
	v := &version{Event: storage.Event{Type: change, Key: key, CreateRevision: created, Value: bytes.Clone(value)}}
	if ttl > 0 {
		v.expires = time.Now().Add(ttl)
	}
	revision := s.appendVersion(v)
	if ttl > 0 {
		s.expiry.add(v, s.expireDue)
	}
	return revision
}

// removeKey deletes a key and returns the revision of the deletion.
func (s *Store) removeKey(key string) int64 {
	return s.appendVersion(&version{Event: storage.Event{Type: storage.Deleted, Key: key}})
}

// appendVersion makes a version the newest one of its key, at a new revision.
func (s *Store) appendVersion(v *version) int64 {
	last := s.newestChange()
	v.Revision = last.revision + 1
	if v.Type == storage.Created {
		v.CreateRevision = v.Revision
	}
	v.previous, _ = s.keys.Set(v.Key, v)
	c := &historyEntry{revision: v.Revision, version: v, followed: make(chan struct{})}
	s.history = append(s.history, c)
	last.next = c
	close(last.followed)
	return v.Revision
}
