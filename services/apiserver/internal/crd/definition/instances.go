package definition

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/json/jsontext"
	"binnacle/services/apiserver/internal/storage"
)

// StoredInstances accesses the objects of custom resources in the store. Like kube-apiserver, it
// deletes them in the store and not with requests: admission cannot prevent the deletion, and a
// definition that is not served may have objects too.
type StoredInstances struct {
	Store storage.Interface
	// Root is the prefix of all keys, without a trailing slash.
	Root string
	Now  func() time.Time
}

var _ Instances = (*StoredInstances)(nil)

const (
	// instancesPerPage is the number of objects that Delete lists at a time.
	instancesPerPage = 500
	// deleteWorkers is the number of concurrent deletions.
	deleteWorkers = 8
	// maxDeleteAttempts is how often Delete tries to delete an object that others change.
	maxDeleteAttempts = 5
)

// prefix returns the key prefix of the objects. It returns an error if other data may
// have the prefix.
func (s *StoredInstances) prefix(group, resource string) (string, error) {
	if !HasOwnKeyPrefix(group, resource) {
		return "", fmt.Errorf("%s.%s has no key prefix of its own in the store", resource, group)
	}
	return s.Root + "/" + group + "/" + resource + "/", nil
}

// RequireNoInstances implements Instances.
func (s *StoredInstances) RequireNoInstances(group, resource string) (storage.Precondition, error) {
	prefix, err := s.prefix(group, resource)
	return storage.Precondition{Key: prefix, Prefix: true}, err
}

// Count implements Instances.
func (s *StoredInstances) Count(ctx context.Context, group, resource string) (int64, error) {
	prefix, err := s.prefix(group, resource)
	if err != nil {
		return 0, err
	}
	res, err := s.Store.List(ctx, prefix, storage.ListOptions{Limit: 1})
	return res.Count, err
}

// Delete implements Instances. An error for one object does not stop the deletion of the others.
func (s *StoredInstances) Delete(ctx context.Context, group, resource string) error {
	prefix, err := s.prefix(group, resource)
	if err != nil {
		return err
	}
	opts := storage.ListOptions{Limit: instancesPerPage}
	var failed []error
	for {
		res, err := s.Store.List(ctx, prefix, opts)
		if err != nil {
			return err
		}
		failed = append(failed, s.deletePage(ctx, res.Items)...)
		if !res.HasMore || len(res.Items) == 0 || ctx.Err() != nil {
			return errors.Join(failed...)
		}
		opts.StartKey = res.Items[len(res.Items)-1].Key + "\x00"
	}
}

// deletePage deletes the objects of a page with several workers. It returns their errors.
func (s *StoredInstances) deletePage(ctx context.Context, items []storage.KeyValue) (failed []error) {
	var (
		mu      sync.Mutex
		work    sync.WaitGroup
		pending = make(chan storage.KeyValue)
	)
	for range min(deleteWorkers, len(items)) {
		work.Go(func() {
			for kv := range pending {
				if err := s.delete(ctx, kv); err != nil {
					mu.Lock()
					failed = append(failed, err)
					mu.Unlock()
				}
			}
		})
	}
	for _, kv := range items {
		pending <- kv
	}
	close(pending)
	work.Wait()
	return failed
}

// delete deletes an object or, if it has finalizers, sets its deletion timestamp.
func (s *StoredInstances) delete(ctx context.Context, keyValue storage.KeyValue) error {
	for range maxDeleteAttempts {
		if err := keyValue.Corrupt(); err != nil {
			return fmt.Errorf("%s cannot be read; delete it with the option ignoreStoreReadErrorWithClusterBreakingPotential: %w",
				keyValue.Key, err)
		}
		marked, err := markedForDeletion(keyValue.Value, s.Now())
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", keyValue.Key, err)
		case marked == nil:
			_, err = s.Store.Delete(ctx, keyValue.Key, keyValue.ModRevision)
		case len(marked) == 0:
			return nil
		default:
			_, err = s.Store.Update(ctx, keyValue.Key, marked, keyValue.ModRevision, storage.WriteOptions{})
		}
		if err == nil || errors.Is(err, storage.ErrNotFound) {
			return nil
		}
		var conflict *storage.ConflictError
		if !errors.As(err, &conflict) {
			return fmt.Errorf("%s: %w", keyValue.Key, err)
		}
		keyValue = conflict.Live
	}
	return fmt.Errorf("%s: too many conflicting updates", keyValue.Key)
}

// markedForDeletion returns an object with a deletion timestamp. It returns nil if the object has
// no finalizers, and an empty slice if it already has a deletion timestamp.
func markedForDeletion(doc []byte, now time.Time) ([]byte, error) {
	raw, err := jsontext.Find(doc, "metadata")
	if err != nil {
		return nil, err
	}
	var metadata struct {
		Finalizers        []string     `json:"finalizers"`
		DeletionTimestamp *metav1.Time `json:"deletionTimestamp"`
		Generation        int64        `json:"generation"`
	}
	if err := json.Unmarshal(raw, &metadata); err != nil {
		return nil, err
	}
	if len(metadata.Finalizers) == 0 {
		return nil, nil
	}
	if metadata.DeletionTimestamp != nil {
		return []byte{}, nil
	}
	fields := map[string]string{
		"deletionTimestamp":          now.UTC().Format(`"` + time.RFC3339 + `"`),
		"deletionGracePeriodSeconds": "0",
	}
	if metadata.Generation > 0 {
		fields["generation"] = strconv.FormatInt(metadata.Generation+1, 10)
	}
	for name, value := range fields {
		if doc, err = jsontext.Put(doc, []byte(value), "metadata", name); err != nil {
			return nil, err
		}
	}
	return doc, nil
}
