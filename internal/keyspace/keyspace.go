// Package keyspace says which Redis keys belong together.
//
// Dependencies fall into 64 groups by a hash of their name. All keys of a group carry the group's hash tag, so that
// one script can serve every dependency of a group, on one Redis as on a Redis Cluster, where the groups spread over
// the masters.
package keyspace

import (
	"hash/fnv"
	"strconv"
)

// Groups is the number of groups. Changing it loses everything that is stored.
const Groups = 64

// Notice is the channel on which scripts publish that a group changed. A message is a hint, never the truth.
const Notice = "rp:notice"

// Group returns the group of a dependency, 0 to Groups-1.
func Group(dependency string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(dependency)) // never fails
	return int(h.Sum32() % Groups)
}

// Key returns the name of a key of a whole group: rp:{g7}:log.
func Key(group int, kind string) string {
	return "rp:{g" + strconv.Itoa(group) + "}:" + kind
}

// DependencyKey returns the name of a key of one dependency: rp:{g7}:s:payments.
func DependencyKey(kind, dependency string) string {
	return Key(Group(dependency), kind) + ":" + dependency
}
