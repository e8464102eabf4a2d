package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/util/version"

	"binnacle/services/apiserver/internal/storage"
)

// maxComparedValue is the maximum size in bytes of a value that is read again for comparison. For
// larger values only the revisions are compared.
const maxComparedValue = 2 << 10

// VerifyHistory implements storage.Interface. Only linearizable reads prove that the store's
// revision went backwards: a lagging member is also behind its earlier revisions.
func (s *Store) VerifyHistory(ctx context.Context, position storage.Position) (_ int64, err error) {
	defer s.metrics.observe("revision", s.prefix, time.Now(), &err)
	last := position.Last
	if s.localRevision != nil || last.Revision == 0 {
		return s.confirmNewest(ctx, position)
	}
	// At the position, the key has the value of its last change.
	opts := []clientv3.OpOption{clientv3.WithRev(max(last.Revision, position.Revision))}
	comparesValue := last.Size <= maxComparedValue
	if !comparesValue {
		opts = append(opts, clientv3.WithKeysOnly())
	}
	resp, err := s.hedgedGet(ctx, last.Key, opts...)
	if errors.Is(err, rpctypes.ErrCompacted) || errors.Is(err, rpctypes.ErrFutureRev) {
		return s.confirmNewest(ctx, position)
	}
	if err != nil {
		return 0, s.translateError(ctx, err)
	}
	if err := confirmHeader(position, resp.Header); err != nil {
		return 0, err
	}
	unchanged := last.Deleted // then the key must be absent
	if len(resp.Kvs) > 0 {
		kv := toKeyValue(resp.Kvs[0])
		unchanged = !last.Deleted && kv.ModRevision == last.Revision && (!comparesValue || storage.ChangeIDOfValue(&kv).Equal(last))
	}
	if !unchanged {
		return 0, position.HistoryReplaced(resp.Header.Revision, fmt.Sprintf("the change of %s at %d is missing", last.Key, last.Revision))
	}
	return resp.Header.Revision, nil
}

// confirmNewest compares revisions only. An etcd in this process cannot be replaced while it is in
// use, but its watches deliver a change shortly before its revision includes it. If such an etcd
// seems to be behind, it is read once more, through consensus.
func (s *Store) confirmNewest(ctx context.Context, position storage.Position) (int64, error) {
	if s.localRevision != nil {
		if newest, err := s.readRevision(ctx); err != nil || newest >= position.Revision {
			return newest, err
		}
	}
	resp, err := s.hedgedGet(ctx, s.prefix) // linearizable: after the changes being applied
	if err != nil {
		return 0, s.translateError(ctx, err)
	}
	if err := confirmHeader(position, resp.Header); err != nil {
		return 0, err
	}
	return resp.Header.Revision, nil
}

// confirmHeader compares the header of a linearizable response with the position.
func confirmHeader(position storage.Position, header *pb.ResponseHeader) error {
	if err := confirmCluster(position, header); err != nil {
		return err
	}
	if header.Revision < position.Revision {
		return revisionWentBack(position, header.Revision)
	}
	return nil
}

// confirmCluster returns an error if the response is from another cluster.
func confirmCluster(position storage.Position, header *pb.ResponseHeader) error {
	if id := header.GetClusterId(); position.Store != 0 && id != 0 && id != position.Store {
		return position.HistoryReplaced(header.Revision, fmt.Sprintf("etcd cluster ID is %x, want %x", id, position.Store))
	}
	return nil
}

// revisionWentBack returns the error for a store whose newest revision is before the position.
func revisionWentBack(position storage.Position, newest int64) error {
	return position.HistoryReplaced(newest, fmt.Sprintf("newest revision of the store is %d", newest))
}

const (
	// statusTimeout bounds the wait for the version of a member.
	statusTimeout = 5 * time.Second
	// versionRetry is the interval of further attempts to read the version of a member.
	versionRetry = 30 * time.Second
)

// progressReliability states whether a member's progress notifications are reliable. Before 3.4.31
// and 3.5.13 etcd reported progress beyond events that it had not sent yet. A reader that relies on
// such a notification misses them.
type progressReliability int

const (
	progressUnknown progressReliability = iota
	progressReliable
	progressUnreliable
)

// progressMarker is the key, below the prefix of a watch, that is written to determine how far a
// member with unreliable notifications has delivered: events arrive in order.
const progressMarker = "binnacle-progress"

// hasReliableProgress reports whether progress notifications of an etcd version are reliable.
func hasReliableProgress(etcdVersion string) bool {
	parsed, err := version.ParseGeneric(etcdVersion)
	if err != nil || parsed.Major() < 3 {
		return false
	}
	if parsed.Major() > 3 || parsed.Minor() > 5 {
		return true
	}
	firstFixed := map[uint]uint{4: 31, 5: 13} // patch version by minor version
	patch, fixed := firstFixed[parsed.Minor()]
	return fixed && parsed.Patch() >= patch
}

// member is the status of an endpoint.
type member struct {
	endpoint string
	memberID uint64
	version  string
	err      error
}

// progressReliabilityOf reads the version of every endpoint and returns the reliability of the
// member that serves a watch. If that member is not among the responses, because of a proxy, the
// result holds for all endpoints together, and is known only if all responded. reason explains the
// result.
func (s *Store) progressReliabilityOf(ctx context.Context, serving uint64) (result progressReliability, reason string) {
	if s.localRevision != nil { // in this process, so it has the version of the build
		return progressReliable, ""
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	endpoints := s.client.Endpoints()
	members := make(chan member, len(endpoints))
	for _, e := range endpoints {
		go func() { members <- readVersion(ctx, s.client, e) }()
	}
	result = progressReliable
	var reasons []string
	for range endpoints {
		member := <-members
		outdated := member.err == nil && !hasReliableProgress(member.version)
		switch {
		case outdated:
			result = progressUnreliable
			reasons = append(reasons, member.endpoint+" has version "+member.version)
		case member.err != nil:
			reasons = append(reasons, fmt.Sprintf("%s: %v", member.endpoint, member.err))
			if result == progressReliable {
				result = progressUnknown
			}
		}
		if member.err == nil && member.memberID == serving && serving != 0 {
			if outdated {
				return progressUnreliable, reasons[len(reasons)-1]
			}
			return progressReliable, ""
		}
	}
	return result, strings.Join(reasons, "; ")
}

// readVersion reads the status of an endpoint.
func readVersion(ctx context.Context, client *clientv3.Client, endpoint string) member {
	resp, err := client.Status(ctx, endpoint)
	if err != nil {
		return member{endpoint: endpoint, err: err}
	}
	return member{endpoint: endpoint, memberID: resp.Header.MemberId, version: resp.Version}
}

// resolveReliability retries until the reliability of the serving member is known, and sends
// intermediate results to the stream.
func (s *stream) resolveReliability() {
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case <-retry.C:
		case <-s.ctx.Done():
			return
		}
		result, reason := s.store.progressReliabilityOf(s.ctx, s.serving)
		if s.ctx.Err() != nil {
			return
		}
		switch result {
		case progressUnreliable:
			s.store.log.Error("etcd before 3.4.31 and 3.5.13 sends unreliable progress notifications; polling its revision instead; upgrade etcd",
				"prefix", s.prefix, "reason", reason)
		case progressUnknown:
			s.store.log.Warn("unknown etcd version; polling its revision instead of using progress notifications",
				"prefix", s.prefix, "reason", reason, "retryAfter", versionRetry)
			retry.Reset(versionRetry)
		}
		select {
		case s.resolved <- result:
		case <-s.ctx.Done():
			return
		}
		if result != progressUnknown {
			return
		}
	}
}

// writeMarker writes below the watch's prefix. The event of the write follows those of all earlier
// changes.
func (s *stream) writeMarker() {
	_, err := s.store.kv.Put(s.ctx, s.prefix+progressMarker, "")
	if err != nil && s.ctx.Err() == nil {
		s.store.log.Warn("failed to determine etcd's progress by a write", "key", s.prefix+progressMarker, "error", err)
	}
	s.markerWritten <- struct{}{}
}
