package etcd

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// ProgressReliability returns the reliability of the members at a client's endpoints.
func ProgressReliability(ctx context.Context, c *clientv3.Client, serving uint64) string {
	result, _ := (&Store{client: c}).progressReliabilityOf(ctx, serving)
	return map[progressReliability]string{
		progressUnknown:    "unknown",
		progressReliable:   "reliable",
		progressUnreliable: "unreliable",
	}[result]
}
