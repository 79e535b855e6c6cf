import os,glob,json,sys
import pyarrow.parquet as pq
root=sys.argv[1]
ev=[]
for p in glob.glob(root+'/runs/*/run.json'):
    s=json.load(open(p))['seconds']; ev.append((os.path.getmtime(p),s,'run'))
for p in glob.glob(root+'/tables/*.parquet'):
    o=json.loads(pq.read_metadata(p).metadata[b'ssm.provenance']); ev.append((os.path.getmtime(p),o.get('seconds') or 0,p.split('/')[-1].split('_')[0]))
ev.sort()
tok=os.path.getmtime(glob.glob(root+'/tokens/*/manifest.json')[0])
print('jobs',len(ev),'sum s %.1f'%sum(e[1] for e in ev),'tokens->last %.1f'%(ev[-1][0]-tok),'first end - its s - tok %.1f'%(ev[0][0]-ev[0][1]-tok))
rep=sorted(glob.glob(root+'/report/*')); print([ '%.1f'%(os.path.getmtime(r)-ev[-1][0]) for r in rep])
wall=ev[-1][0]-tok
print('overhead a job (2 side by side): %.2f s'%((2*wall-sum(e[1] for e in ev))/len(ev)))
