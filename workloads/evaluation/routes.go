// Shortest ways on a map, in Go: routes SECONDS.
//
// The map is a grid of 1,500 x 1,500 places with names. Five times a second somebody wants a way within the city, which is a
// hundred-and-fortieth of it. The garbage collector goes over all names now and then.
package main

import (
	"container/heap"
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"time"
)

const (
	size = 1500
	city = 125
	rate = 5
)

type place struct {
	name string
	far  [4]uint16
	_    [16]byte
}

type step struct{ place, far int }

type queue []step

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].far < q[j].far }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)        { *q = append(*q, x.(step)) }
func (q *queue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

// way is how far it is between two places, by Dijkstra's method.
func way(places []place, from, to int) (int, string) {
	least := map[int]int{from: 0}
	open := &queue{{from, 0}}
	for open.Len() > 0 {
		at := heap.Pop(open).(step)
		if at.place == to {
			return at.far, places[to].name
		}
		if at.far > least[at.place] {
			continue
		}
		row, column := at.place/size, at.place%size
		for side, next := range [4][2]int{{row, column + 1}, {row + 1, column}, {row, column - 1}, {row - 1, column}} {
			if next[0] < 0 || next[1] < 0 || next[0] >= city || next[1] >= city {
				continue
			}
			there, far := next[0]*size+next[1], at.far+int(places[at.place].far[side])
			if known, found := least[there]; !found || far < known {
				least[there] = far
				heap.Push(open, step{there, far})
			}
		}
	}
	return -1, ""
}

func main() {
	seconds, err := strconv.ParseFloat(os.Args[1], 64)
	if err != nil {
		panic(err)
	}
	draw := rand.New(rand.NewSource(1))
	places := make([]place, size*size)
	for i := range places {
		places[i].name = "place " + strconv.Itoa(i)
		for side := range places[i].far {
			places[i].far[side] = uint16(1 + draw.Intn(1000))
		}
	}
	within := func() int { return draw.Intn(city)*size + draw.Intn(city) }
	start, calls, sum := time.Now(), int(rate*seconds), 0
	var took time.Duration
	for call := 1; call <= calls; call++ {
		// What comes late is not left out.
		time.Sleep(time.Until(start.Add(time.Duration(call) * time.Second / rate)))
		begun := time.Now()
		far, name := way(places, within(), within())
		sum += far + len(name)
		took += time.Since(begun)
	}
	fmt.Printf("sum: %d, mean: %.3f ms\n", sum, took.Seconds()*1000/float64(calls))
}
