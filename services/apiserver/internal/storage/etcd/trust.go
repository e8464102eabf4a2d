package etcd

import (
	"context"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/util/version"
)

const (
	// statusTimeout bounds the wait for the version of a member.
	statusTimeout = 5 * time.Second
	// trustRetry is the interval after which members of unknown version are asked again.
	trustRetry = 30 * time.Second
)

// trust is whether a member's progress notifications are reliable. Before 3.4.31 and 3.5.13 etcd
// reported progress beyond events that it had not sent yet, so a reader that relies on it loses
// them.
type trust int

const (
	unknown trust = iota
	trusted
	distrusted
)

// progressMarker is the key, below the prefix of a watch, that is written to learn how far a
// distrusted member has delivered: events arrive in order.
const progressMarker = "binnacle-progress"

// reportsProgress reports whether an etcd version is trusted.
func reportsProgress(v string) bool {
	parsed, err := version.ParseGeneric(v)
	if err != nil || parsed.Major() < 3 {
		return false
	}
	switch least := map[uint]uint{4: 31, 5: 13}; {
	case parsed.Major() > 3 || parsed.Minor() > 5:
		return true
	default:
		patch, fixed := least[parsed.Minor()]
		return fixed && parsed.Patch() >= patch
	}
}

// member is the status of an endpoint.
type member struct {
	endpoint string
	id       uint64
	version  string
	err      error
}

// judge reads the version of every endpoint. A watch is rated by the member that serves it. If that
// member is not among the responses, because of a proxy, it is rated by all endpoints together, if
// all responded. why explains the result.
func (s *Store) judge(ctx context.Context, serving uint64) (t trust, why string) {
	if s.newest != nil { // in this process, so it has the version of the build
		return trusted, ""
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	endpoints := s.client.Endpoints()
	answers := make(chan member, len(endpoints))
	for _, e := range endpoints {
		go func() { answers <- askVersion(ctx, s.client, e) }()
	}
	t = trusted
	var reasons []string
	for range endpoints {
		m := <-answers
		old := m.err == nil && !reportsProgress(m.version)
		switch {
		case old:
			t = distrusted
			reasons = append(reasons, m.endpoint+" has version "+m.version)
		case m.err != nil:
			reasons = append(reasons, fmt.Sprintf("%s: %v", m.endpoint, m.err))
			if t == trusted {
				t = unknown
			}
		}
		if m.err == nil && m.id == serving && serving != 0 {
			if old {
				return distrusted, reasons[len(reasons)-1]
			}
			return trusted, ""
		}
	}
	return t, strings.Join(reasons, "; ")
}

func askVersion(ctx context.Context, c *clientv3.Client, endpoint string) member {
	resp, err := c.Status(ctx, endpoint)
	if err != nil {
		return member{endpoint: endpoint, err: err}
	}
	return member{endpoint: endpoint, id: resp.Header.MemberId, version: resp.Version}
}

// learn retries until the rating of the serving member is known, and reports intermediate results
// to the stream.
func (s *stream) learn() {
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case <-retry.C:
		case <-s.ctx.Done():
			return
		}
		t, why := s.store.judge(s.ctx, s.serving)
		if s.ctx.Err() != nil {
			return
		}
		switch t {
		case distrusted:
			s.store.log.Error("etcd's progress notifications cannot be trusted before 3.4.31 and 3.5.13, so its revision is polled instead, which costs reads and writes: UPGRADE ETCD", "prefix", s.prefix, "reason", why)
		case unknown:
			s.store.log.Warn("unknown etcd version; polling its revision instead of using progress notifications", "prefix", s.prefix, "reason", why, "again", trustRetry)
			retry.Reset(trustRetry)
		}
		select {
		case s.learned <- t:
		case <-s.ctx.Done():
			return
		}
		if t != unknown {
			return
		}
	}
}

// mark writes below the watch's prefix. The event of the write follows those of all earlier
// changes.
func (s *stream) mark() {
	_, err := s.store.kv.Put(s.ctx, s.prefix+progressMarker, "")
	if err != nil && s.ctx.Err() == nil {
		s.store.log.Warn("failed to determine etcd's progress by a write", "key", s.prefix+progressMarker, "err", err)
	}
	s.marked <- struct{}{}
}
