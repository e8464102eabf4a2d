package etcd

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Judge returns the trust in the members at a client's endpoints.
func Judge(ctx context.Context, c *clientv3.Client, serving uint64) string {
	t, _ := (&Store{client: c}).rateMember(ctx, serving)
	return map[progressTrust]string{unknown: "unknown", trusted: "trusted", distrusted: "distrusted"}[t]
}
