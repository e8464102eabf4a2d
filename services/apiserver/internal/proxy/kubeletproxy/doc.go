// Package kubeletproxy proxies requests to kubelets, pods and services: plain HTTP, connections
// that are upgraded to SPDY or WebSocket, and logs.
//
// For WebSocket clients, the kubelet is contacted by SPDY. The channels of v5.channel.k8s.io become
// streams (translate.go), and the SPDY of a forwarded port is extracted from WebSocket messages
// (tunnel.go). All connections end with the request's context. Package upgrade opens upgraded
// connections, and bounds the response of the other side until it agrees.
//
// The handlers check the request and its permissions. This package knows only locations and
// transports.
package kubeletproxy
