// Package golden replays recorded conversations with a Kubernetes 1.33 API
// server against any server and says where the answers differ.
//
// A case is a YAML file of steps in cases/; NAME.want.json beside it holds what
// the reference server answered, after normalisation: uids, resource versions,
// times, continue tokens, generated names, cluster addresses, the case's
// namespace and saved variables become placeholders. A step agrees to the
// letter, or in substance: all but the wording of messages is the same. Where
// the reference answers a client's mistake with 500 and no reason, any 4xx
// agrees.
//
// The reference ran without a controller manager and without nodes, with
// --service-cluster-ip-range=10.0.0.0/24 --authorization-mode=Node,RBAC
// --enable-bootstrap-token-auth --allow-privileged=true
// --service-account-issuer=https://kubernetes.default.svc, default feature
// gates, and the default admission plugins with NodeRestriction.
//
// Its callers are TestGolden, which runs every case against a server of its
// own, and the command in cmd, for running cases by hand.
package golden
